"""How a request log is made: a recording proxy, hooks for clients and gateways, and settings for engines.

`proxy.serve` stands in front of a server; `httpx`, `litellm` and `otel` hook into a client or gateway. All of them hand
`exchange.Exchange` values to one `recorder.Recorder`, whose thread turns them into lines (`lines`), masks or
fingerprints what must not be written (`redact`, `fingerprint`), chooses whole conversations (`sample`) and appends to a
file (`logfile`). Nothing here may delay or break the request that it watches: what cannot be written is counted.

A line is one JSON object. `prefixlint_record` is its version; the other keys:

| key | meaning |
|---|---|
| `time` | seconds since the epoch, when the request arrived |
| `id` | `<run>-<number>`, unique in the log |
| `method`, `target`, `status` | of the HTTP exchange; secrets in a query are masked; status may be null |
| `request` | the request body, after masking; null where it was no JSON (`malformed` says why) |
| `headers` | request headers asked for by name; never one that carries a secret |
| `conversation` | a label that all turns of one conversation share |
| `response` | `id`, `model`, `finish`, and with output asked for `text`, `reasoning`, `tool_calls` |
| `usage` | `prompt`, `cached`, `written`, `completion`, `long` tokens as `Usage` has them; unknown ones are left out |
| `reported` | the usage object as the server wrote it |
| `ttft_s`, `total_s` | seconds to the first generated content of a stream, and to the end |
| `sent_bytes`, `received_bytes` | body sizes on the wire |
| `outcome` | left out where all went through: `client-gone`, `upstream-failed`, `upstream-broke-off`, `stopped` |
| `error` | what went wrong, for people |
| `notes` | what of this line is incomplete |

With `--fingerprint`, `request` and `response` hold no text; see `fingerprint`.
"""

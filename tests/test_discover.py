"""Which files a check reads, compared with what git's patterns say of each path, and what people expect of a walk."""

import os
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixlint import discover
from prefixlint.discover import find


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(**files):
        for name, text in files.items():
            put(tmp_path, name, text)
        return tmp_path

    return make


def put(root, name, text=""):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_folders_are_walked_and_what_no_source_claims_is_left_out(tree):
    root = tree(**{"a.py": "", "deep/er/b.j2": "", "c.png": "", "Dockerfile": "", "noending": "", "d.PY": ""})
    assert find(root, ["."]).paths == ["Dockerfile", "a.py", "d.PY", "deep/er/b.j2", "noending"]


@pytest.mark.parametrize("folder", ["node_modules", ".git", "site-packages", "__pycache__"])
def test_some_folders_are_never_entered_unless_they_are_asked_for(tree, folder):
    root = tree(**{f"{folder}/a.py": "", "b.py": ""})
    assert find(root, ["."]).paths == ["b.py"]
    assert find(root, ["."]).project == {"b.py": False}
    assert find(root, [folder]).paths == [f"{folder}/a.py"]


def test_excluded_files_are_known_but_not_linted(tree):
    root = tree(**{"a.py": "", "tests/b.py": "", "tests/deep/c.py": "", "src/test_d.py": "", "src/conftest.py": ""})
    found = find(root, ["."])
    assert found.paths == ["a.py"]
    assert found.project == {
        "a.py": False,
        "tests/b.py": True,
        "tests/deep/c.py": True,
        "src/test_d.py": True,
        "src/conftest.py": True,
    }


def test_an_excluded_file_that_is_named_is_read_unless_forced(tree):
    root = tree(**{"tests/b.py": ""})
    assert find(root, ["tests/b.py"]).paths == ["tests/b.py"]
    forced = find(root, ["tests/b.py"], force=True)
    assert (forced.paths, forced.skipped) == ([], ["tests/b.py"])


def test_an_excluded_folder_that_is_named_is_read_unless_forced(tree):
    root = tree(**{"tests/b.py": "", "tests/sub/c.py": "", "tests/fixtures/d.py": ""})
    assert find(root, ["tests"]).paths == ["tests/b.py", "tests/sub/c.py"]
    assert find(root, ["tests/sub"]).paths == ["tests/sub/c.py"]
    assert find(root, ["tests"], force=True).paths == []


def test_a_gitignore_counts_in_its_folder_and_below(tree):
    root = tree(
        **{
            ".gitignore": "# comment\n\nignored/\n*.gen.py\n!keep.gen.py\n/top.py\n",
            "ignored/a.py": "",
            "b.gen.py": "",
            "keep.gen.py": "",
            "top.py": "",
            "sub/top.py": "",
            "sub/.gitignore": "local.py\nx/y.py\n",
            "sub/local.py": "",
            "local.py": "",
            "sub/x/y.py": "",
            "x/y.py": "",
        }
    )
    assert find(root, ["."]).paths == ["keep.gen.py", "local.py", "sub/top.py", "x/y.py"]
    assert find(root, ["sub"]).paths == ["sub/top.py"]
    assert find(root, ["ignored"]).paths == ["ignored/a.py"], "it was asked for"
    assert find(root, ["ignored"], force=True).paths == []


def test_a_gitignore_with_a_line_that_is_no_pattern_is_read_without_it(tree):
    root = tree(**{".gitignore": "!\nclips/[X] 2 [AVC-8bit].csv\nb.py\n", "a.py": "", "b.py": ""})
    assert find(root, ["."]).paths == ["a.py"]


def test_a_folder_outside_the_root_is_walked(tree, tmp_path_factory):
    root = tree(**{"a.py": ""})
    other = tmp_path_factory.mktemp("other")
    put(other, "b.py")
    assert find(root, [str(other)]).paths == [f"{other.as_posix()}/b.py"]


def test_what_is_missing_is_said_and_the_rest_read(tree):
    root = tree(**{"a.py": ""})
    found = find(root, ["a.py", "gone.py"])
    assert (found.paths, found.missing) == (["a.py"], ["gone.py"])


def test_loops_of_links_end_and_links_to_files_are_read(tree):
    root = tree(**{"real/a.py": ""})
    (root / "real" / "loop").symlink_to(root)
    (root / "b.py").symlink_to(root / "real" / "a.py")
    (root / "c.py").symlink_to(root / "nowhere")
    assert find(root, ["."]).paths == ["b.py", "real/a.py"]


def test_a_folder_that_cannot_be_listed_is_passed_over(tree, monkeypatch):
    root = tree(**{"a.py": "", "closed/b.py": ""})
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert find(root, ["."]).paths == ["a.py"]


def test_a_file_asked_for_twice_is_linted_once(tree):
    root = tree(**{"a.py": "", "b/c.py": ""})
    assert find(root, ["a.py", ".", "b", "./a.py"]).paths == ["a.py", "b/c.py"]


@pytest.mark.parametrize("marker", [".git", "prefixlint.toml", "pyproject.toml"])
def test_the_root_is_the_nearest_marked_folder(tmp_path, marker):
    (tmp_path / marker).mkdir() if marker == ".git" else (tmp_path / marker).touch()
    put(tmp_path, "a/b/c.py")
    assert discover.root_of(tmp_path / "a" / "b" / "c.py") == tmp_path


NAMES = ["a", "b", "ab", "a.py", "b.py", "test_a.py", "x.gen.py", "build", ".env.py"]
PATTERNS = [
    *("a", "b/", "*.py", "test_*", "*_a.py", "/a", "a/b", "a/**", "**/b", "*.gen.*", "!a.py", "!b/", "[ab]", "?", "x*"),
    *("build/", "/build", ".*", "# a", "", "  ", "a ", "\\!a", "!", "/", "**", "a/*/b.py", "[!a]*.py", "./a", ".."),
]


@given(
    lines=st.lists(st.sampled_from(PATTERNS), max_size=6),
    paths=st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), min_size=1, max_size=8),
)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_patterns_hit_what_git_would_hit(lines, paths):
    patterns = discover._patterns(tuple(lines))
    spec = discover._spec(tuple(lines))
    for parts in paths:
        # a walk asks for each folder on the way, and does not enter what is left out
        said = any(
            patterns.hit("/".join(parts[:size]), parts[size - 1], folder=size < len(parts))
            for size in range(1, len(parts) + 1)
        )
        expected = any(
            spec.match_file("/".join(parts[:size]) + ("/" if size < len(parts) else ""))
            for size in range(1, len(parts) + 1)
        )
        assert said == expected, (lines, parts)


def test_brackets_that_later_pythons_may_read_otherwise_are_no_matter(tree):
    root = tree(**{".gitignore": "[[]x]*.py\na/[[b]*.py\n", "kept.py": "", "a/b.py": ""})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find(root, ["."]).paths == ["kept.py"]

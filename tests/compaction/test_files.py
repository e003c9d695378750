"""Which files were touched is read from the arguments of calls."""

from __future__ import annotations

import json

import pytest

from proxy.compaction.files import merged, touched
from proxy.dialects import Call

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: src/b.py\n+z\n*** End Patch"

CASES: dict[str, tuple[str, object, tuple[str, ...], tuple[str, ...]]] = {
    "a read": ("read_file", {"path": "a.py"}, (), ("a.py",)),
    "a write": ("write_file", {"file_path": "a.py", "content": "x"}, ("a.py",), ()),
    "an edit under another name": ("tool_7", {"filename": "a.py", "old_string": "x", "new_string": "y"}, ("a.py",), ()),
    "a verb in the arguments": ("str_replace_based_edit_tool", {"command": "view", "path": "a.py"}, (), ("a.py",)),
    "a writing verb": ("str_replace_based_edit_tool", {"command": "create", "path": "a.py"}, ("a.py",), ()),
    "a patch": ("apply_patch", {"input": PATCH}, ("src/a.py", "src/b.py"), ()),
    "a patch in a shell": ("shell", {"command": ["apply_patch", PATCH]}, ("src/a.py", "src/b.py"), ()),
    "a unified diff": ("patch", {"diff": "--- a/x.py\n+++ b/x.py\n@@"}, ("x.py",), ()),
    "a patch with spaces": (
        "patch",
        {"diff": "+++ b/my file.py  \r\n@@\n*** Add File:\nnot.py\n*** Move to: \tz.py\t\n"},
        ("my file.py", "z.py"),
        (),
    ),
    "a patch that is no JSON": ("apply_patch", PATCH, ("src/a.py", "src/b.py"), ()),
    "a redirection": ("bash", {"command": "echo hi > out/log.txt 2>&1"}, ("out/log.txt",), ()),
    "sed in place": ("bash", {"command": "sed -i 's/a/b/' src/c.py"}, ("src/c.py",), ()),
    "nothing to see": ("bash", {"command": "ls -la > /dev/null"}, (), ()),
    "broken arguments": ("read_file", '{"path": ', (), ()),
    "odd values": ("read_file", {"path": 7, "file": ["x.py", None]}, (), ("x.py",)),
}


@pytest.mark.parametrize("name", CASES)
def test_calls_tell_what_they_touch(name: str) -> None:
    """Paths by name of argument, patch header or redirection; whether written by verb, name or shape."""
    tool, arguments, modified, read = CASES[name]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    assert touched([Call(id="1", name=tool, arguments=text)]) == (modified, read)


def test_later_mentions_place_a_path_anew_and_a_modified_one_is_not_read() -> None:
    """So the newest paths are last, where a budget keeps them."""
    assert merged((("a", "b"), ("c", "d")), (("a", "c"), ("e", "b"))) == (("b", "a", "c"), ("d", "e"))

"""Histories that clients rewrite: every trace is exact, and every response trained once."""

import pytest

from agent_server.agents.chat_template import ChatTemplate
from rollyard.messages import ChatMessage, ToolSchema
from tests.agent_server.gateway.rewrites import (
    Ask,
    Item,
    Recorded,
    assistant,
    call,
    changed,
    result,
    system,
    terse,
    user,
    with_arguments,
    with_ids,
)

S, U, MORE, LAST = system("brief"), user("hi"), user("more"), user("last")
BEGIN: list[Item] = [S, U]
P = "|s:brief;|u:hi;|a:"
LS = ToolSchema(name="ls", description="")
CAT = ToolSchema(name="cat", description="")
FIRST = Ask(BEGIN, ["yes"])
SECOND = Ask([*BEGIN, 0, MORE], ["no"])
CALLS = Ask(BEGIN, [call("ls")], (LS,))
BOTH = Ask(BEGIN, [call("ls") + call("cat")], (LS, CAT))
THINKS = Ask(BEGIN, ["<think>hm</think>yes"])
Q = f"|ls,;{P}"
QQ = f"|ls,cat,;{P}"
BOTH_RESULTS: list[Item] = [result("a", 0), result("b", 0, 1)]
SWAPPED: list[Item] = [
    ChatMessage(role="tool", content="a", tool_call_id="y"),
    ChatMessage(role="tool", content="b", tool_call_id="x"),
]

CASES: dict[str, tuple[list[Ask], list[str]]] = {
    "one request": ([FIRST], [f"{P}[yes;]"]),
    "the conversation goes on": ([FIRST, SECOND], [f"{P}[yes;]|u:more;|a:[no;]"]),
    "a tool answers": (
        [CALLS, Ask([*BEGIN, 0, result("a", 0)], ["done"], (LS,))],
        [f"{Q}[ls;]|t:a;|a:[done;]"],
    ),
    "two tools answer": (
        [BOTH, Ask([*BEGIN, 0, *BOTH_RESULTS], ["done"], (LS, CAT))],
        [f"{QQ}[lscat;]|t:a;|t:b;|a:[done;]"],
    ),
    "the first request is sent again": ([FIRST, FIRST], [f"{P}[yes;]", f"{P}[yes;]"]),
    "a request is sent again after its answer was used": (
        [FIRST, SECOND, Ask(BEGIN, ["other"])],
        [f"{P}[yes;]|u:more;|a:[no;]", f"{P}[other;]"],
    ),
    "a later request is sent again": (
        [FIRST, SECOND, Ask(SECOND.items, ["never"])],
        [f"{P}[yes;]|u:more;|a:[no;]", f"{P}yes;|u:more;|a:[never;]"],
    ),
    "two choices, and the second is used": (
        [Ask(BEGIN, ["one", "two"]), Ask([*BEGIN, 1, MORE], ["no"])],
        [f"{P}[one;]", f"{P}[two;]|u:more;|a:[no;]"],
    ),
    "two choices, and the first is used": (
        [Ask(BEGIN, ["one", "two"]), Ask([*BEGIN, 0, MORE], ["no"])],
        [f"{P}[two;]", f"{P}[one;]|u:more;|a:[no;]"],
    ),
    "two choices that look alike, and one is used": (
        [Ask(BEGIN, ["yes", "yes"]), Ask([*BEGIN, 0, MORE], ["no"])],
        [f"{P}[yes;]", f"{P}[yes;]|u:more;|a:[no;]"],
    ),
    "two choices, and both are used": (
        [
            Ask(BEGIN, ["one", "two"]),
            Ask([*BEGIN, 0, MORE], ["no"]),
            Ask([*BEGIN, 1, MORE], ["yes"]),
        ],
        [f"{P}[one;]|u:more;|a:[no;]", f"{P}[two;]|u:more;|a:[yes;]"],
    ),
    "choices in the middle": (
        [FIRST, Ask(SECOND.items, ["one", "two"]), Ask([*SECOND.items, 1, LAST], ["end"])],
        [f"{P}[yes;]|u:more;|a:[two;]", f"{P}yes;|u:more;|a:[one;]|u:last;|a:[end;]"],
    ),
    "two branches of one response": (
        [FIRST, SECOND, Ask([*BEGIN, 0, LAST], ["end"])],
        [f"{P}[yes;]|u:more;|a:[no;]", f"{P}yes;|u:last;|a:[end;]"],
    ),
    "branches that take turns": (
        [
            FIRST,
            SECOND,
            Ask([*BEGIN, 0, LAST], ["end"]),
            Ask([*SECOND.items, 1, LAST], ["so"]),
            Ask([*BEGIN, 0, LAST, 2, MORE], ["on"]),
        ],
        [
            f"{P}[yes;]|u:more;|a:[no;]|u:last;|a:[so;]",
            f"{P}yes;|u:last;|a:[end;]|u:more;|a:[on;]",
        ],
    ),
    "a sub-agent with instructions of its own": (
        [FIRST, Ask([system("sub"), U], ["found"]), SECOND],
        ["|s:sub;|u:hi;|a:[found;]", f"{P}[yes;]|u:more;|a:[no;]"],
    ),
    "a sub-agent with the same instructions": (
        [FIRST, Ask([S, user("sub")], ["found"]), SECOND],
        ["|s:brief;|u:sub;|a:[found;]", f"{P}[yes;]|u:more;|a:[no;]"],
    ),
    "a sub-agent that knows the whole history": (
        [FIRST, Ask([*BEGIN, 0, user("sub")], ["found"]), SECOND],
        [f"{P}[yes;]|u:sub;|a:[found;]", f"{P}yes;|u:more;|a:[no;]"],
    ),
    "a sub-agent of two turns between two turns": (
        [
            FIRST,
            Ask([system("sub"), U], ["so"]),
            Ask([system("sub"), U, 1, MORE], ["found"]),
            SECOND,
        ],
        ["|s:sub;|u:hi;|a:[so;]|u:more;|a:[found;]", f"{P}[yes;]|u:more;|a:[no;]"],
    ),
    "compaction to a summary": (
        [FIRST, SECOND, Ask([S, user("sum")], ["end"])],
        [f"{P}[yes;]|u:more;|a:[no;]", "|s:brief;|u:sum;|a:[end;]"],
    ),
    "compaction that keeps the last response": (
        [FIRST, SECOND, Ask([S, user("sum"), 1, LAST], ["end"])],
        [f"{P}[yes;]|u:more;|a:[no;]", "|s:brief;|u:sum;|a:no;|u:last;|a:[end;]"],
    ),
    "a conversation that goes on after compaction": (
        [FIRST, Ask([S, user("sum")], ["no"]), Ask([S, user("sum"), 1, LAST], ["end"])],
        [f"{P}[yes;]", "|s:brief;|u:sum;|a:[no;]|u:last;|a:[end;]"],
    ),
    "a summary that the policy writes": (
        [FIRST, Ask([*BEGIN, 0, user("sum up")], ["sum"]), Ask([S, user("sum")], ["end"])],
        [f"{P}[yes;]|u:sum up;|a:[sum;]", "|s:brief;|u:sum;|a:[end;]"],
    ),
    "a window that slides": (
        [FIRST, SECOND, Ask([S, MORE, 1, LAST], ["end"])],
        [f"{P}[yes;]|u:more;|a:[no;]", "|s:brief;|u:more;|a:no;|u:last;|a:[end;]"],
    ),
    "other instructions": (
        [FIRST, Ask([system("long"), U, 0, MORE], ["no"])],
        [f"{P}[yes;]", "|s:long;|u:hi;|a:yes;|u:more;|a:[no;]"],
    ),
    "no instructions any more": (
        [FIRST, Ask([U, 0, MORE], ["no"])],
        [f"{P}[yes;]", "|u:hi;|a:yes;|u:more;|a:[no;]"],
    ),
    "other tools": (
        [CALLS, Ask([*BEGIN, 0, result("a", 0)], ["done"], (CAT,))],
        [f"{Q}[ls;]", f"|cat,;{P}ls;|t:a;|a:[done;]"],
    ),
    "no tools any more": (
        [CALLS, Ask([*BEGIN, 0, result("a", 0)], ["done"])],
        [f"{Q}[ls;]", f"{P}ls;|t:a;|a:[done;]"],
    ),
    "an edited result": (
        [
            CALLS,
            Ask([*BEGIN, 0, result("a", 0)], ["done"], (LS,)),
            Ask([*BEGIN, 0, result("b", 0)], ["more"], (LS,)),
        ],
        [f"{Q}[ls;]|t:a;|a:[done;]", f"{Q}ls;|t:b;|a:[more;]"],
    ),
    "an edited result long ago": (
        [
            CALLS,
            Ask([*BEGIN, 0, result("a", 0)], ["done"], (LS,)),
            Ask([*BEGIN, 0, result("gone", 0), 1, LAST], ["end"], (LS,)),
        ],
        [f"{Q}[ls;]|t:a;|a:[done;]", f"{Q}ls;|t:gone;|a:done;|u:last;|a:[end;]"],
    ),
    "results in another order": (
        [
            BOTH,
            Ask([*BEGIN, 0, *BOTH_RESULTS], ["done"], (LS, CAT)),
            Ask([*BEGIN, 0, *BOTH_RESULTS[::-1]], ["more"], (LS, CAT)),
        ],
        [f"{QQ}[lscat;]|t:a;|t:b;|a:[done;]", f"{QQ}lscat;|t:b;|t:a;|a:[more;]"],
    ),
    "an edited question": (
        [FIRST, Ask([S, user("hey"), 0, MORE], ["no"])],
        [f"{P}[yes;]", "|s:brief;|u:hey;|a:yes;|u:more;|a:[no;]"],
    ),
    "an edited answer": (
        [FIRST, Ask([*BEGIN, assistant("maybe"), MORE], ["no"])],
        [f"{P}[yes;]", f"{P}maybe;|u:more;|a:[no;]"],
    ),
    "examples of an assistant before the first request": (
        [Ask([S, MORE, assistant("ex"), U], ["yes"])],
        ["|s:brief;|u:more;|a:ex;|u:hi;|a:[yes;]"],
    ),
    "examples that go on": (
        [
            Ask([S, MORE, assistant("ex"), U], ["yes"]),
            Ask([S, MORE, assistant("ex"), U, 0, LAST], ["end"]),
        ],
        ["|s:brief;|u:more;|a:ex;|u:hi;|a:[yes;]|u:last;|a:[end;]"],
    ),
    "an answer that the client adds": (
        [FIRST, Ask([*BEGIN, 0, MORE, assistant("mine"), LAST], ["end"])],
        [f"{P}[yes;]", f"{P}yes;|u:more;|a:mine;|u:last;|a:[end;]"],
    ),
    "the last answer is left out": (
        [FIRST, Ask([*BEGIN, MORE], ["no"])],
        [f"{P}[yes;]", "|s:brief;|u:hi;|u:more;|a:[no;]"],
    ),
    "the last exchange is taken back": (
        [FIRST, SECOND, Ask([*BEGIN, 0, LAST], ["end"])],
        [f"{P}[yes;]|u:more;|a:[no;]", f"{P}yes;|u:last;|a:[end;]"],
    ),
    "blanks around an answer are stripped": (
        [Ask(BEGIN, ["yes \n"]), Ask([*BEGIN, changed(0, content="yes"), MORE], ["no"])],
        [f"{P}[yes \n;]|u:more;|a:[no;]"],
    ),
    "blanks around an earlier question are stripped": (
        [Ask([S, user("hi\n")], ["yes"]), SECOND],
        ["|s:brief;|u:hi\n;|a:[yes;]|u:more;|a:[no;]"],
    ),
    "blanks within an answer are changed": (
        [Ask(BEGIN, ["a  b"]), Ask([*BEGIN, changed(0, content="a b"), MORE], ["no"])],
        [f"{P}[a  b;]", f"{P}a b;|u:more;|a:[no;]"],
    ),
    "other ids of calls": (
        [
            BOTH,
            Ask(
                [
                    *BEGIN,
                    with_ids(0, "x", "y"),
                    ChatMessage(role="tool", content="a", tool_call_id="x"),
                    ChatMessage(role="tool", content="b", tool_call_id="y"),
                ],
                ["done"],
                (LS, CAT),
            ),
            Ask([*BEGIN, 0, *BOTH_RESULTS, 1, LAST], ["end"], (LS, CAT)),
        ],
        [f"{QQ}[lscat;]|t:a;|t:b;|a:[done;]|u:last;|a:[end;]"],
    ),
    "results change their calls": (
        [
            BOTH,
            Ask([*BEGIN, 0, *BOTH_RESULTS], ["done"], (LS, CAT)),
            Ask([*BEGIN, with_ids(0, "x", "y"), *SWAPPED, 1, LAST], ["end"], (LS, CAT)),
        ],
        [
            f"{QQ}[lscat;]|t:a;|t:b;|a:[done;]",
            f"{QQ}ls\ncat;|t:a;|t:b;|a:done;|u:last;|a:[end;]",
        ],
    ),
    "arguments in another order": (
        [
            Ask(BEGIN, [call("ls", '{"a": 1, "b": 2}')], (LS,)),
            Ask([*BEGIN, with_arguments(0, {"b": 2, "a": 1}), result("a", 0)], ["done"], (LS,)),
        ],
        [f"{Q}[ls;]|t:a;|a:[done;]"],
    ),
    "other arguments": (
        [
            Ask(BEGIN, [call("ls", '{"a": 1}')], (LS,)),
            Ask([*BEGIN, with_arguments(0, {}), result("a", 0)], ["done"], (LS,)),
        ],
        [f"{Q}[ls;]", f"{Q}ls;|t:a;|a:[done;]"],
    ),
    "reasoning is told again": (
        [THINKS, Ask([*BEGIN, 0, MORE], ["no"])],
        [f"{P}[<think>hm</think>yes;]|u:more;|a:[no;]"],
    ),
    "reasoning is dropped": (
        [THINKS, Ask([*BEGIN, changed(0, reasoning=""), MORE], ["no"])],
        [f"{P}[<think>hm</think>yes;]|u:more;|a:[no;]"],
    ),
    "reasoning is edited": (
        [THINKS, Ask([*BEGIN, changed(0, reasoning="aha"), MORE], ["no"])],
        [f"{P}[<think>hm</think>yes;]", f"{P}yes;|u:more;|a:[no;]"],
    ),
    "a response that was cut short goes on": (
        [Ask(BEGIN, ["yes"], cut=True), SECOND],
        [f"{P}[yes];|u:more;|a:[no;]"],
    ),
    "two messages become one": (
        [Ask([S, U, MORE], ["yes"]), Ask([S, user("hi\nmore"), 0, LAST], ["end"])],
        ["|s:brief;|u:hi;|u:more;|a:[yes;]", "|s:brief;|u:hi\nmore;|a:yes;|u:last;|a:[end;]"],
    ),
    "a call that cannot be read is told as text": (
        [
            Ask(BEGIN, ["<tool_call>{</tool_call>"], (LS,)),
            Ask([*BEGIN, 0, MORE], ["no"], (LS,)),
        ],
        [f"{Q}[<tool_call>{{</tool_call>;]|u:more;|a:[no;]"],
    ),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> ChatTemplate:
    return terse(tmp_path_factory.mktemp("terse"))


@pytest.mark.parametrize("case", CASES)
def test_every_trace_is_exact(template: ChatTemplate, case: str) -> None:
    asked, expected = CASES[case]
    recorded = Recorded(template)
    for ask in asked:
        recorded.ask(ask)
    assert recorded.shown() == expected

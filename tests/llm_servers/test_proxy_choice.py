"""The proxy's choice of a server, and its judgement on each: whatever happens to them."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from llm_servers.proxy.choice import EVEN, CachedPrefix, LoadOfLLM, choose_server, cost
from llm_servers.proxy.judgement import (
    BEHIND_SECONDS,
    LLMPatience,
    LLMStanding,
    LookAtLLM,
    SeenOfLLM,
    gives_up,
    judge,
    rotation,
)

SERVERS = ("a", "b", "c")
NOW = 1000.0
loads = st.dictionaries(
    st.sampled_from(SERVERS),
    st.builds(LoadOfLLM, st.integers(0, 10**5), st.integers(0, 64)),
    min_size=1,
)
seen = st.builds(
    SeenOfLLM,
    standing=st.sampled_from(LLMStanding),
    version=st.none() | st.integers(0, 3),
    labelled_at=st.sampled_from((0.0, NOW)),
    answered_at=st.just(NOW),
    paused_at=st.none() | st.just(NOW - 2 * BEHIND_SECONDS),
)
fleets = st.fixed_dictionaries(dict.fromkeys(SERVERS, seen))


@given(loads, st.integers(0, 10**5), st.sampled_from(SERVERS), st.integers(0, 10**5))
def test_a_trajectory_leaves_its_home_only_for_one_that_costs_less(
    loads: dict[str, LoadOfLLM], prompt: int, home: str, cached: int
) -> None:
    prefix = CachedPrefix(home, min(cached, prompt))
    chosen = choose_server(loads, prompt, prefix)
    costs = {each: cost(each, load, prompt, prefix) for each, load in loads.items()}
    assert costs[chosen] == min(costs.values())
    if home in loads and chosen != home:
        assert costs[chosen] < costs[home]


@given(loads, st.integers(0, 10**5))
def test_a_new_trajectory_goes_to_none_that_has_more_than_its_share(
    loads: dict[str, LoadOfLLM], prompt: int
) -> None:
    chosen = choose_server(loads, prompt)
    each = [load.trajectories for load in loads.values()]
    share = EVEN * (sum(each) + 1) / len(each)
    assert loads[chosen].trajectories < share or loads[chosen].trajectories == min(each)


def test_a_prefix_is_worth_a_short_wait_and_not_a_long_one() -> None:
    prefix = CachedPrefix("a", 4000)
    assert choose_server({"a": LoadOfLLM(3000), "b": LoadOfLLM()}, 4100, prefix) == "a"
    assert choose_server({"a": LoadOfLLM(30_000), "b": LoadOfLLM()}, 4100, prefix) == "b"


@given(fleets)
def test_where_any_server_is_ready_only_ready_ones_take_requests(
    fleet: dict[str, SeenOfLLM],
) -> None:
    standings = {fleet[server].standing for server in rotation(fleet, NOW)}
    there = {each.standing for each in fleet.values()}
    wanted = (LLMStanding.READY, LLMStanding.PAUSED, LLMStanding.SLOW)
    assert standings == set([each for each in wanted if each in there][:1])


@given(fleets)
def test_no_request_is_given_up_on_a_server_that_takes_them_now(
    fleet: dict[str, SeenOfLLM],
) -> None:
    for server in rotation(fleet, NOW):
        if fleet[server].standing is LLMStanding.READY:
            assert not gives_up(server, fleet, NOW)


def test_a_server_without_the_weights_of_the_others_takes_no_request() -> None:
    ready = SeenOfLLM(standing=LLMStanding.READY, version=2, labelled_at=0.0)
    fresh = msgspec.structs.replace(ready, version=None)
    assert rotation({"a": ready, "b": fresh}, NOW) == ("a",)
    behind = msgspec.structs.replace(ready, version=1)
    assert rotation({"a": ready, "b": behind}, NOW) == ("a",)
    just_now = msgspec.structs.replace(ready, labelled_at=NOW)
    assert rotation({"a": just_now, "b": behind}, NOW) == ("a", "b"), "the look at b may be older"


def test_a_server_that_stayed_paused_when_others_went_on_is_given_up_after_a_while() -> None:
    paused = SeenOfLLM(standing=LLMStanding.PAUSED, version=1, paused_at=0.0)
    ready = SeenOfLLM(standing=LLMStanding.READY, version=2)
    assert not gives_up("a", {"a": paused, "b": ready}, BEHIND_SECONDS - 1)
    assert gives_up("a", {"a": paused, "b": ready}, BEHIND_SECONDS + 1)
    assert not gives_up("a", {"a": paused}, 100 * BEHIND_SECONDS), "all wait for the update"


def test_a_silent_server_is_slow_first_and_hangs_later_but_not_while_it_loads() -> None:
    patience = LLMPatience(silent_seconds=10.0)
    there = judge(SeenOfLLM(), LookAtLLM(at=0.0), patience)
    slow = judge(there, LookAtLLM(at=5.0, answers=False), patience)
    hung = judge(slow, LookAtLLM(at=11.0, answers=False), patience)
    assert (slow.standing, hung.standing) == (LLMStanding.SLOW, LLMStanding.HUNG)
    assert judge(hung, LookAtLLM(at=12.0), patience).standing is LLMStanding.READY
    loading = judge(there, LookAtLLM(at=1.0, paused=True), patience)
    loading = judge(loading, LookAtLLM(at=60.0, answers=False), patience)
    assert loading.standing is LLMStanding.PAUSED


def test_a_server_that_answers_but_brings_no_token_hangs_and_a_slow_one_does_not() -> None:
    patience = LLMPatience(stalled_seconds=10.0)
    stuck = slow = judge(SeenOfLLM(), LookAtLLM(at=0.0, brought=5.0), patience)
    for at in (4.0, 8.0, 12.0):
        stuck = judge(stuck, LookAtLLM(at=at, brought=5.0, running=3), patience)
        slow = judge(slow, LookAtLLM(at=at, brought=5.0 + at, running=3), patience)
    assert (stuck.standing, slow.standing) == (LLMStanding.HUNG, LLMStanding.READY)

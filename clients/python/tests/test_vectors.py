"""The vectors of the conformance kit, which all clients share."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from vectors import vectors, wire

from isotone import Layout, Range, Timestamp, Timestamp64, errors, snowflake
from isotone._interval import Bounds, Estimate, Instant, Rate, Reading, Stamper
from isotone._pace import (
    EAGER_PAUSE_MAX,
    PAUSE_MAX,
    REFUSED_PAUSE_MAX,
    SPARE_PAUSE_MAX,
    pause,
    quota_pause,
)
from isotone._resp import IDS, TS, TS64, cluster_of, read_answer, read_reply, request, view_of

FORMS = {"timestamps": TS, "timestamps64": TS64, "ids": IDS}
KINDS = {
    "retry": PAUSE_MAX,
    "search": EAGER_PAUSE_MAX,
    "search_later": PAUSE_MAX,
    "refused": REFUSED_PAUSE_MAX,
    "spare": SPARE_PAUSE_MAX,
}


@pytest.mark.parametrize("v", vectors("timestamps", "forms"))
def test_timestamp_forms(v: dict[str, Any]) -> None:
    ts = Timestamp.from_hex(v["hex"])
    assert ts == Timestamp(int(v["time"]), int(v["index"]))
    assert ts.hex() == str(ts) == v["hex"]
    assert bytes(ts) == bytes.fromhex(v["hex"])
    assert Timestamp.from_bytes(bytes(ts)) == ts
    u64 = Timestamp64.at_or_after(ts)
    assert (str(u64), str(u64.milli), u64.counter) == (v["u64"], v["physical"], v["logical"])


@pytest.mark.parametrize("v", vectors("timestamps", "places"))
def test_places(v: dict[str, Any]) -> None:
    u64 = Timestamp64.parse(v["u64"])
    assert (str(u64.milli), u64.counter) == (v["physical"], v["logical"])
    assert u64.timestamp().hex() == v["hex"]


def test_order() -> None:
    for a, b in itertools.combinations(vectors("timestamps", "order"), 2):
        assert Timestamp.from_hex(a) < Timestamp.from_hex(b)
        assert bytes(Timestamp.from_hex(a)) < bytes(Timestamp.from_hex(b))


@pytest.mark.parametrize("v", vectors("timestamps", "ranges"))
def test_ranges(v: dict[str, Any]) -> None:
    first = Timestamp.from_hex(v["first"])
    assert Range(first, int(v["count"])).last.hex() == v["last"]


@pytest.mark.parametrize("text", vectors("timestamps", "invalid"))
def test_invalid_timestamps(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        Timestamp.from_hex(text)


@pytest.mark.parametrize("text", vectors("timestamps", "invalid64"))
def test_invalid_timestamps64(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        Timestamp64.parse(text)


@pytest.mark.parametrize("v", vectors("ids", "layouts"))
def test_layouts(v: dict[str, Any]) -> None:
    if not v["valid"]:
        with pytest.raises(errors.InvalidArgumentError):
            Layout.parse(v["layout"], v["epoch"])
        return
    assert str(Layout.parse(v["layout"], v["epoch"])) == v["layout"].replace("/0/10/", "/10/")


@pytest.mark.parametrize("v", vectors("ids", "ids"))
def test_ids(v: dict[str, Any]) -> None:
    id_ = snowflake.parse_decimal(v["decimal"])
    assert (str(id_), snowflake.to_base62(id_), snowflake.to_hex(id_)) == (
        v["decimal"],
        v["base62"],
        v["hex"],
    )
    assert snowflake.parse_base62(v["base62"]) == snowflake.parse_hex(v["hex"]) == id_
    layout = Layout.parse(v["layout"], v["epoch"])
    for part in ("worker", "datacenter", "in_datacenter", "sequence"):
        assert getattr(layout, part)(id_) == v[part], part
    assert layout.milli(id_) == v["millis"]


@pytest.mark.parametrize("v", vectors("ids", "invalid"))
def test_invalid_ids(v: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        getattr(snowflake, "parse_" + v["form"])(v["text"])


@pytest.mark.parametrize("v", vectors("errors", "lines"))
def test_error_lines(v: dict[str, Any]) -> None:
    refusal = errors.decode(v["line"])
    assert (refusal.code, refusal.kind, refusal.leader) == (v["code"], v["class"], v.get("leader", ""))
    assert refusal.retry_after == v.get("retry_after_ms", 0) / 1000
    assert refusal.error().code == v["code"]


@pytest.mark.parametrize("line", vectors("errors", "malformed"))
def test_redirects_to_nowhere(line: str) -> None:
    with pytest.raises(errors.MalformedError):
        errors.decode(line)


@pytest.mark.parametrize("v", vectors("backoff", "pauses"))
def test_pauses(v: dict[str, Any]) -> None:
    most = KINDS[v["kind"]]
    assert pause(v["failures"], most, lambda: 0.0) * 1e6 == pytest.approx(v["min"])
    assert pause(v["failures"], most, lambda: 1.0) * 1e6 == pytest.approx(v["max"])


@pytest.mark.parametrize("v", vectors("backoff", "quota"))
def test_quota_pauses(v: dict[str, Any]) -> None:
    asked = v["retry_after_ms"] / 1000
    assert quota_pause(asked, v["failures"], lambda: 0.0) * 1e6 == pytest.approx(v["min"])
    assert v["min"] < quota_pause(asked, v["failures"], lambda: 1.0) * 1e6 <= v["max"] + 1e-6


@pytest.mark.parametrize("v", vectors("generator", "generators"), ids=lambda v: v["about"][:30])
def test_generators(v: dict[str, Any]) -> None:
    lease = tuple(v["lease"]) if v["lease"] else None
    layout = Layout.parse(v["layout"], v["epoch"])
    worker = snowflake.Worker(v["worker"], layout, lease, v["ahead_max_ms"])
    for step in v["steps"]:
        if "extend" in step:
            worker.extend(step["extend"])
        elif "stop" in step:
            assert worker.stop() == step["stop"]
        elif "refused" in step:
            with pytest.raises(errors.Error) as refused:
                worker.take(step["take"], step["now"])
            assert refused.value.reason == step["refused"]
            kind = step["refused"].partition("_")[0]
            assert refused.value.code == {"batch": "invalid_argument", "clock": "clock"}.get(kind, "overloaded")
        else:
            ids = worker.take(step["take"], step["now"])
            assert (len(ids), str(ids[0]), str(ids[-1])) == (step["take"], step["first"], step["last"])
            sequences = 1 << layout.sequence_bits
            for a, b in itertools.pairwise(ids):
                counts = [layout.milli(i) * sequences + layout.sequence(i) for i in (a, b)]
                assert counts[1] == counts[0] + 1


@pytest.mark.parametrize("v", vectors("resp", "requests"))
def test_requests(v: dict[str, Any]) -> None:
    floor = Timestamp.from_hex(v["floor"]) if "floor" in v else None
    assert request(FORMS[v["method"]], int(v["count"]), v.get("mode", ""), floor) == wire(v["wire"])


@pytest.mark.parametrize("v", vectors("resp", "answers"), ids=lambda v: v["about"])
def test_answers(v: dict[str, Any]) -> None:
    data, form, count = wire(v["wire"]), FORMS[v["method"]], int(v["count"])
    if "malformed" in v:
        with pytest.raises(errors.MalformedError):
            read_answer(form, count, data, 0)
        return
    got = read_answer(form, count, data, 0)
    if "incomplete" in v:
        assert got is None
        return
    assert got is not None
    assert got[1] == len(data)
    if "error" in v:
        assert got[0] == errors.decode(v["error"])
    elif "ids" in v:
        assert [str(i) for i in got[0]] == v["ids"]
    else:
        assert str(got[0]) == v["first"]
    assert read_answer(form, count, b"before" + data + b"after", 6) == (got[0], 6 + len(data))
    for end in range(len(data)):
        assert read_answer(form, count, data[:end], 0) is None


@pytest.mark.parametrize("v", vectors("resp", "slots"), ids=lambda v: v["about"])
def test_slots(v: dict[str, Any]) -> None:
    if "malformed" in v:
        with pytest.raises(errors.MalformedError):
            view_of((read_reply(wire(v["wire"]), 0) or [None])[0], v["asked"])
        return
    got = read_reply(wire(v["wire"]), 0)
    assert got is not None
    if "error" in v:
        assert got[0] == errors.decode(v["error"])
    else:
        assert view_of(got[0], v["asked"]) == (v["leader"], v["members"])


@pytest.mark.parametrize("v", vectors("resp", "clusters"), ids=lambda v: v["about"])
def test_clusters(v: dict[str, Any]) -> None:
    got = read_reply(wire(v["wire"]), 0)
    assert got is not None
    if "malformed" in v:
        with pytest.raises(errors.MalformedError):
            cluster_of(got[0])
    else:
        assert cluster_of(got[0]) == v["cluster"]


def instant(pair: list[str]) -> Instant:
    return Instant(*map(int, pair))


@pytest.mark.parametrize("v", vectors("interval", "readings"), ids=lambda v: v["hex"])
def test_readings(v: dict[str, str]) -> None:
    if "error" in v:
        with pytest.raises(errors.MalformedError):
            Reading.decode(bytes.fromhex(v["hex"]))
        return
    got = Reading.decode(bytes.fromhex(v["hex"]))
    assert got.cluster == int(v["cluster"], 16)
    assert all(getattr(got, field) == int(v[field]) for field in ("earliest", "latest", "limit", "term", "nonce"))


@pytest.mark.parametrize("v", vectors("interval", "estimates"), ids=lambda v: v["name"][:40])
def test_estimates(v: dict[str, Any]) -> None:
    estimate, rate = Estimate(), Rate()
    for step in v["steps"]:
        if "take" in step:
            take = step["take"]
            sent, received = instant(take["sent"]), instant(take["received"])
            reading = Reading(**{field: int(number) for field, number in take["reading"].items()})
            estimate, agrees = estimate.take(sent, received, reading)
            rate.take(received, reading.term, agrees)
            assert (agrees, rate.believed) == (step["agrees"], step["believed"])
        elif "bounds" in step:
            numbers = [int(step[field]) for field in ("earliest", "latest", "limit", "term")]
            assert estimate.bounds(instant(step["bounds"])) == (*numbers, step["good"])
        else:
            wait = estimate.until(instant(step["until"]), int(step["time"]))
            assert wait == (int(step["wait"]) if step["ok"] else None)


def bounds(v: dict[str, str]) -> Bounds:
    return Bounds(**{field: int(number) for field, number in v.items()}, good=int(v["latest"]) <= int(v["limit"]))


@pytest.mark.parametrize("v", vectors("interval", "generators"))
def test_stampers(v: dict[str, Any]) -> None:
    stamper = Stamper(int(v["random"]), Timestamp.from_hex(v["last"]).time if v["last"] else 0)
    got = stamper.take(bounds(v["bounds"]), int(v["count"]))
    first = Timestamp.from_hex(v["timestamp"]) if v["timestamp"] else None
    assert got == [Timestamp(first.time + i, first.index) for i in range(int(v["count"])) if first]


@pytest.mark.parametrize("v", vectors("interval", "past"))
def test_past(v: dict[str, Any]) -> None:
    assert bounds(v["bounds"]).is_past(Timestamp.from_hex(v["timestamp"])) == v["past"]

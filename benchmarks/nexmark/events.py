"""Nexmark's events: persons, auctions and bids, 1 : 3 : 46, from a seed.

Every event has a time of its own, some 10 milliseconds after the one before. Half of the bids go
to a hot auction, three quarters come from a hot bidder; the others are spread over the newest
auctions and persons. Prices are spread evenly over their magnitudes, 100 to 100,000,000. Auctions
are open for 1 to 20 seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

_ROUND, _PERSONS, _AUCTIONS = 50, 1, 3
_FIRST_ID = 1000
_GAP_US = 10_000
# Near midnight: bids of two days.
_START = datetime(2015, 7, 15, 23, 58, 30)  # noqa: DTZ001 - event time has no zone
_STATES = np.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CITIES = np.array(["Phoenix", "Los Angeles", "Boise", "Portland", "Seattle", "Cheyenne", "Bend"])
_FIRST = np.array(["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah"])
_LAST = np.array(["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones"])
_CHANNELS = np.array(["Google", "Facebook", "Baidu", "Apple"])
_ACTIVE = 100
_HOT_EVERY = 20


@dataclass(frozen=True)
class Events:
    """One table an attribute. `batch` tells when a row arrives: 0 at first, then 1, 2, …"""

    person: pa.Table
    auction: pa.Table
    bid: pa.Table
    side_input: pa.Table


def generate(first: int, batches: int, size: int, seed: int) -> Events:
    """`first` events and then `batches` of `size`."""
    random = np.random.default_rng(seed)
    number = np.arange(first + batches * size)
    batch = np.where(number < first, 0, 1 + (number - first) // max(1, size))
    ts = number * _GAP_US + random.integers(0, _GAP_US, number.size)
    # The writer commits every thousand events at first, then once a batch.
    commit = np.where(number < first, number // 1000, first // 1000 + batch)
    arrived = commit * 7_000_000 + 1_000_000
    within = number % _ROUND
    persons = number // _ROUND + (within >= _PERSONS)
    auctions = number // _ROUND * _AUCTIONS + np.clip(within - _PERSONS, 0, _AUCTIONS)
    is_person, is_auction = within < _PERSONS, (within >= _PERSONS) & (within < 4)
    is_bid = ~(is_person | is_auction)

    def common(chosen: np.ndarray) -> dict[str, pa.Array]:
        return {
            "ts": _times(ts[chosen]),
            "extra": pa.array(_letters(random, int(chosen.sum()), 12)),
            "batch": pa.array(batch[chosen]),
        }

    count = int(is_person.sum())
    first_name, last_name = random.choice(_FIRST, count), random.choice(_LAST, count)
    person = {
        "id": pa.array(_FIRST_ID + np.arange(count)),
        "name": pa.array([f"{a} {b}" for a, b in zip(first_name, last_name, strict=True)]),
        "email": pa.array([f"{name}@{name}.com" for name in _letters(random, count, 7)]),
        "credit_card": pa.array([f"{n:016}" for n in random.integers(0, 10**16, count)]),
        "city": pa.array(random.choice(_CITIES, count)),
        "state": pa.array(random.choice(_STATES, count)),
        **common(is_person),
    }
    count = int(is_auction.sum())
    initial = _prices(random, count)
    auction = {
        "id": pa.array(_FIRST_ID + np.arange(count)),
        "item_name": pa.array(_letters(random, count, 10)),
        "description": pa.array(_letters(random, count, 20)),
        "initial_bid": pa.array(initial),
        "reserve": pa.array(initial + _prices(random, count)),
        "expires": _times(ts[is_auction] + random.integers(1_000_000, 20_000_000, count)),
        "seller": pa.array(_some(random, persons[is_auction], 0.75)),
        "category": pa.array(random.integers(10, 15, count)),
        **common(is_auction),
    }
    count = int(is_bid.sum())
    channel, url = _channels(random, count)
    bid = {
        "auction": pa.array(_some(random, auctions[is_bid], 0.5)),
        "bidder": pa.array(_some(random, persons[is_bid], 0.75, shift=1)),
        "price": pa.array(_prices(random, count)),
        "channel": pa.array(channel),
        "url": pa.array(url),
        "arrived": _times(arrived[is_bid]),
        **common(is_bid),
    }
    keys = np.arange(0, 100, 2)
    side = {
        "key": pa.array(keys),
        "value": pa.array([f"value {key}" for key in keys]),
        "batch": pa.array(keys * 0),
    }
    return Events(pa.table(person), pa.table(auction), pa.table(bid), pa.table(side))


def _some(random: np.random.Generator, made: np.ndarray, hot: float, shift: int = 0) -> np.ndarray:
    """An id for each event, of the `made` ones so far: the hot one, or one of the newest.

    Hot sellers and hot bidders are others: `shift`.
    """
    last = np.maximum(made - 1, 0)
    cold = last - random.integers(0, np.minimum(last + 1, _ACTIVE))
    chosen = np.where(
        random.random(made.size) < hot,
        np.minimum(last // _HOT_EVERY * _HOT_EVERY + shift, last),
        cold,
    )
    return _FIRST_ID + chosen


def _prices(random: np.random.Generator, count: int) -> np.ndarray:
    return (10 ** (random.random(count) * 6) * 100).astype(np.int64)


def _channels(random: np.random.Generator, count: int) -> tuple[list[str], list[str]]:
    """Names and addresses; a channel without a name of its own has its number in the address."""
    hot, number = random.random(count) < 0.5, random.integers(0, 500, count)
    names = np.where(hot, random.choice(_CHANNELS, count), "").tolist()
    folders = _letters(random, count, 5)
    found = [name or f"channel-{n}" for name, n in zip(names, number, strict=True)]
    urls = [
        f"https://www.nexmark.com/{folder[:3]}/{folder}/{folder[2:]}/item.htm?query=1"
        + ("" if name or n % 3 == 0 else f"&channel_id={n}")
        for name, n, folder in zip(names, number, folders, strict=True)
    ]
    return found, urls


def _letters(random: np.random.Generator, count: int, length: int) -> list[str]:
    codes = random.integers(ord("a"), ord("z") + 1, (count, length), dtype=np.uint8)
    return codes.view(f"S{length}").ravel().astype(str).tolist()


def _times(microseconds: np.ndarray) -> pa.Array:
    start = np.datetime64(_START, "us")
    return pa.array(start + microseconds.astype("timedelta64[us]"))

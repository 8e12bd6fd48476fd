"""Reads the states of pages with memento_client and with pywb: python memento.py DATES PAGE...

Each PAGE is the URL of a page whose html and wikitext have states with exactly these dates, oldest first.
"""

import datetime
import sys

from memento_client import MementoClient
from pywb.warcserver.index.indexsource import MementoIndexSource

FORMAT = "%Y%m%d%H%M%S"


def same(expected, found, what):
    if expected != found:
        sys.exit(f"{what}: {found!r}, not {expected!r}")


def dates_of(mementos):
    return {
        relation: memento["datetime"].strftime(FORMAT)
        for relation, memento in mementos.items()
        if memento["uri"] and memento.get("http_status_code", 200) == 200
    }


def check_memento_client(start, timegate, original, closest, expected):
    client = MementoClient(timegate_uri=timegate, check_native_timegate=True)
    found = client.get_memento_info(start, datetime.datetime.strptime(closest, FORMAT))
    same((original, timegate), (found["original_uri"], found["timegate_uri"]), f"memento_client from {start}")
    same(expected, dates_of(found["mementos"]), f"memento_client at {closest}")


def timestamps(source, page, **closest):
    return [found["timestamp"] for found in source.load_index({"url": page, **closest})]


def check_page(page, name, dates):
    # Both programs take a raw semicolon in a link for the end of its URL.
    linked = page.replace(";", "%3B")
    timegate, timemap = f"{linked}?timegate/{name}", f"{page}?timemap/{name}"
    latest = f"{page}?rev/latest/{name}"
    original = linked if name == "html" else f"{linked}?rev/latest/{name}"
    pywb = MementoIndexSource(f"{page}?timegate/{name}", timemap, page + "?rev/{timestamp}/" + name)
    same(dates, timestamps(pywb, page), f"the timemap of {page} in pywb")
    for index, date in enumerate(dates):
        # A state is selected from its own second on.
        after = datetime.datetime.strptime(date, FORMAT) + datetime.timedelta(days=1)
        around = {"closest": date, "first": dates[0], "last": dates[-1]}
        if index > 0:
            around["prev"] = dates[index - 1]
        if index + 1 < len(dates):
            around["next"] = dates[index + 1]
        for closest in (date, after.strftime(FORMAT)):
            for start in (original, latest):
                check_memento_client(start, timegate, original, closest, around)
            found = timestamps(pywb, page, closest=closest)
            same(sorted(set(around.values())), found, f"the timegate of {page} in pywb at {closest}")
    before = {"closest": dates[0], "first": dates[0], "last": dates[-1]}
    if len(dates) > 1:
        before["next"] = dates[1]
    check_memento_client(original, timegate, original, "19900101000000", before)
    if name == "html":
        # The page itself links to its newest state.
        found = MementoIndexSource(page, timemap, "").load_index({"url": page, "closest": dates[0]})
        same(dates[-1:], [state["timestamp"] for state in found], f"the newest state of {page} in pywb")
        # A state leads to the others.
        state = next(pywb.load_index({"url": page}))["memento_url"]
        check_memento_client(state, timegate, original, "19900101000000", before)


dates = sys.argv[1].split(",")
for page in sys.argv[2:]:
    for name in ("html", "wikitext"):
        check_page(page, name, dates)

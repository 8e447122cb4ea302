"""``zefuse cache``: the cache of plans and native code."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", help="the folder; default: ZEFUSE_CACHE_DIR, else zefuse in the user's cache folder")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    stat = actions.add_parser("stat", help="how many entries, how large, where")
    why = actions.add_parser(
        "why", help="why the newest entries had to be made: what differs from the nearest earlier one"
    )
    for parser_of_action in (stat, why):
        parser_of_action.add_argument("--json", action="store_true", help="plain data instead of text")
    why.add_argument("-n", "--count", type=int, default=20, help="how many of the newest")
    actions.add_parser("clear", help="remove every entry")
    actions.add_parser("export", help="all entries into one file").add_argument("file")
    actions.add_parser("import", help="entries from such a file, which must come from somebody you trust").add_argument(
        "file"
    )


def run(args: argparse.Namespace) -> None:
    from zefuse import cache, reports
    from zefuse.errors import NotFoundError

    folder = cache.directory() if args.dir is None else args.dir
    if not folder and args.action != "stat":
        raise NotFoundError(f"cache {args.action}: {cache.stat('')}; name a folder with --dir")
    if getattr(args, "json", False):
        import json

        found = cache.numbers(folder) if args.action == "stat" else cache.why(folder, args.count)
        print(json.dumps(found))
    elif args.action == "stat":
        print(cache.stat(folder))
    elif args.action == "why":
        print("\n".join(cache.why(folder, args.count)) or f"{folder}: no entries")
    elif args.action == "clear":
        print(f"removed {reports.ask('cache_clear', folder)} entries from {folder}")
    elif args.action == "export":
        print(f"wrote {reports.ask('cache_export', folder, args.file)} entries to {args.file}")
    else:
        print(f"took {reports.ask('cache_import', folder, args.file)} entries into {folder}")

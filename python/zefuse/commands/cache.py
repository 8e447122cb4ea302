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
    why.add_argument("-n", "--count", type=int, default=20, help="how many of the newest")
    clear = actions.add_parser("clear", help="remove every entry")
    written = actions.add_parser("export", help="all entries into one file")
    taken = actions.add_parser("import", help="entries from such a file, which must come from somebody you trust")
    for with_file in (written, taken):
        with_file.add_argument("file")
    for parser_of_action in (stat, why, clear, written, taken):
        parser_of_action.add_argument("--json", action="store_true", help="plain data instead of text")


def run(args: argparse.Namespace) -> None:
    from zefuse import cache, reports
    from zefuse.errors import NotFoundError
    from zefuse.wording import counted

    folder = cache.directory() if args.dir is None else args.dir
    if not folder and args.action != "stat":
        raise NotFoundError(f"cache {args.action}: {cache.stat('')}; name a folder with --dir")
    if args.action in ("stat", "why"):
        if args.json:
            import json

            print(json.dumps(cache.numbers(folder) if args.action == "stat" else cache.why(folder, args.count)))
        elif args.action == "stat":
            print(cache.stat(folder))
        else:
            print("\n".join(cache.why(folder, args.count)) or f"{folder}: no entries")
        return
    file = [args.file] if args.action in ("export", "import") else []
    number = reports.ask(f"cache_{args.action}", folder, *file)
    if args.json:
        import json

        print(json.dumps({"folder": folder, "entries": number}))
        return
    entries = counted(number, "entry", "entries")
    said = {
        "clear": f"removed {entries} from {folder}",
        "export": f"wrote {entries} to {args.file}" if file else "",
        "import": f"took {entries} into {folder}",
    }
    print(said[args.action])

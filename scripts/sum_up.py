"""Adds up the JUnit files of one test run; the last line is "N passed, N failed[, N skipped]"."""

import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def main() -> int:
    results = Path(sys.argv[1])
    passed = failed = skipped = 0
    for file in sorted(results.glob("*.xml")):
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        for case in xml.parse(file).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
                counts["failed"] += 1
                print(f"FAILED {file.stem}: {case.get('classname')} {case.get('name')}")
            elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                counts["skipped"] += 1
            else:
                counts["passed"] += 1
        print(f"{file.stem}: " + ", ".join(f"{number} {what}" for what, number in counts.items()))
        passed, failed, skipped = passed + counts["passed"], failed + counts["failed"], skipped + counts["skipped"]
    for runner in sorted(
        results.glob("*.failed")
    ):  # a runner that failed without a failing case (a crash, a usage error)
        print(f"FAILED {runner.read_text().strip()}")
        if failed == 0:
            failed = 1
    if passed == 0:
        print("no test ran")
        failed = max(failed, 1)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

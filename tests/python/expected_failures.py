"""Tests that cannot pass yet, each with its reason: "file::test[parameters]" -> why. A test here that passes fails the run."""

EXPECTED_FAILURES: dict[str, str] = {}

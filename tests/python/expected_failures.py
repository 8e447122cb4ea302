"""Tests that cannot pass yet, each with its reason: "file::test[parameters]" -> why. A test here that passes fails the run."""

EXPECTED_FAILURES: dict[str, str] = {
    "test_semantics::test_operator_that_checks_its_result": "operators with effects only (with_effects) are not imported",
}

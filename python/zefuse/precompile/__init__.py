"""A second process calls a compiled model without tracing it again (docs/cache.md): facts about what was traced, and their comparison."""

from zefuse.precompile.calls import enable_precompile, events

__all__ = ["enable_precompile", "events"]

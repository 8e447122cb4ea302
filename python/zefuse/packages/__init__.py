"""Ahead of time: programs and captured graphs to a package, packages back to callables, and what is asked of one."""

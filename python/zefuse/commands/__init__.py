"""The commands of ``zefuse``, a module each: ``arguments(parser)`` declares what it takes, ``run(args)`` does it.

``zefuse.cli`` lists them. A module here imports nothing that takes long (torch, rich, the compiled part) before ``run``.
"""

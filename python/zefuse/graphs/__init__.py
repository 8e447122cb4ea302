"""One graph on its way from AOTAutograd to a plan: where it lies, what it saves and returns, where it is cut, who is told of it."""

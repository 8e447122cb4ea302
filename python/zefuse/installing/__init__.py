"""What is installed here, what torch this build serves, and tools that are installed beside the distribution's."""

// Calls a function that no module defines.
int elsewhere(int value);
__kernel void calls_out(__global int *out) { out[0] = elsewhere(3); }

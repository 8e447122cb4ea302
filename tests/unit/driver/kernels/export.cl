// Defines what import.cl calls.
int elsewhere(int value) { return value * 7; }

# Writes the bytes of INPUT to OUTPUT as a comma separated list for an array initialiser.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "${bytes}")

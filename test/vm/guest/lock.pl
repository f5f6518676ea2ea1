# Locks 64 MiB of memory by mlock(2), number 149 on x86-64, from the start of a page on.
my $memory = "x" x ((64 << 20) + 4096);
my $start = unpack("Q", pack("p", $memory));
$start += 4095 - ($start + 4095) % 4096;
exit(syscall(149, $start, 64 << 20) == 0 ? 0 : 1);

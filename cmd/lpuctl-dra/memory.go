package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// shed gives back memory that the driver does not need while it rests: at the start most
// of the program's file is read, because the types of all of Kubernetes' APIs register
// themselves. What is needed again comes back by itself, out of the page cache. Where it
// cannot be given back, the program is larger.
func shed() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for _, m := range readOnly(maps, self) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
	}
}

// shedAbove is how many bytes may be resident. Of less, most is needed again and again.
const shedAbove = 40 << 20

// resident is how many bytes of this process are in memory (proc_pid_statm(5)); if that
// cannot be read, as many as can be.
func resident() int {
	var size, pages int
	data, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		_, err = fmt.Sscan(string(data), &size, &pages)
	}
	if err != nil {
		return math.MaxInt
	}
	return pages * os.Getpagesize()
}

// mapping is where a part of a file lies in memory.
type mapping struct{ from, to uintptr }

// readOnly returns the mappings of a file that no process can write to, out of
// /proc/PID/maps (proc_pid_maps(5)).
func readOnly(maps io.Reader, file string) (all []mapping) {
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var m mapping
		var rights string
		fields := strings.Fields(lines.Text())
		if len(fields) != 6 || fields[5] != file {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &m.from, &m.to, &rights); err == nil && !strings.Contains(rights, "w") {
			all = append(all, m)
		}
	}
	return all
}

// Package guest is what tests need that run in the virtual machine of test/vm/lab: a node whose cards fail as the test says, a real
// `lpuctl serve` on it, and a kubelet that keeps what it is told and when.
package guest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Read is the text of a file without the newline, or "" if it cannot be read.
func Read(path string) string {
	data, _ := os.ReadFile(path)
	return strings.TrimSpace(string(data))
}

// Write changes an attribute of the kernel, as the shell's echo does.
func Write(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// host is the port by which the machine is asked for faults.
type host struct {
	file   *os.File
	answer *bufio.Reader
}

func openHost() (host, error) {
	file, err := os.OpenFile("/dev/virtio-ports/host", os.O_RDWR, 0)
	return host{file, bufio.NewReader(file)}, err
}

// ask wants something of the machine, a line (machine.Machine has the commands), and waits until it is done.
func (h host) ask(command string) error {
	if _, err := fmt.Fprint(h.file, "ask ", command); err != nil {
		return err
	}
	answer, err := h.answer.ReadString('\n')
	if err == nil && answer != "ok\n" {
		err = fmt.Errorf("%s: %s", strings.TrimSpace(command), strings.TrimSpace(answer))
	}
	return err
}

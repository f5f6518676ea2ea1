package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// askYes asks a question of yes or no, and reports whether the answer is yes. The error is
// that of a read.
func askYes(in io.Reader, out io.Writer, question string) (bool, error) {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", err
}

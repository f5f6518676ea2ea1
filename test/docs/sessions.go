package docs

import "strings"

// prompt stands before a command of a session: a block of a page, which is indented.
const prompt = "    $ "

// Replay returns the text of a page with what run prints below each command of its sessions. Where run has not run a command, what is
// below it stays.
func Replay(text string, run func(command string) (output string, ran bool)) string {
	lines := strings.SplitAfter(text, "\n")
	var replayed strings.Builder
	for i := 0; i < len(lines); i++ {
		replayed.WriteString(lines[i])
		command, is := strings.CutPrefix(strings.TrimSuffix(lines[i], "\n"), prompt)
		if !is {
			continue
		}
		output, ran := run(command)
		if !ran {
			continue
		}
		i += below(lines[i+1:])
		for line := range strings.Lines(output) {
			replayed.WriteString(strings.TrimRight("    "+line, " \n") + "\n")
		}
	}
	return replayed.String()
}

// below returns how many lines stand below a command: to the next command, or to the end of the block.
func below(lines []string) (n int) {
	for i, line := range lines {
		if strings.HasPrefix(line, prompt) || line != "\n" && !strings.HasPrefix(line, "    ") {
			break
		}
		if line != "\n" {
			n = i + 1
		}
	}
	return n
}

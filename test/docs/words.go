// Package docs holds the documentation against the source and the programs that it speaks of.
package docs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// ErrorWords is the page that explains what programs print, from the top of the source.
const ErrorWords = "docs/error-words.md"

// Messages reads a page like [ErrorWords]: what it says that programs print, by the headings under which that stands. An error names the
// row that has not three cells, or an empty one.
func Messages(path string) (map[string][]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	span := regexp.MustCompile("``(.+?)``|`([^`]+)`")
	found, program := map[string][]string{}, ""
	for line := range strings.Lines(string(text)) {
		if title, is := strings.CutPrefix(line, "## "); is {
			program = strings.TrimSpace(title)
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| printed ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != 3 || strings.TrimSpace(cells[1]) == "" || strings.TrimSpace(cells[2]) == "" {
			return nil, fmt.Errorf("%s: this is not what is printed, what it means and what to do: %s", path, line)
		}
		for _, m := range span.FindAllStringSubmatch(cells[0], -1) {
			found[program] = append(found[program], m[1]+m[2])
		}
	}
	return found, nil
}

// Parts are what is the same each time that a message is printed. Names of devices and of our programs count as what differs, because
// programs put them into their messages.
func Parts(message string) []string {
	differs := regexp.MustCompile(`\b(?:NAME|PATH|N LPUs|N|POD|USER|VALUE)\b|` +
		`hyperaccel\.ai/lpu|lpu\.hyperaccel\.ai|lpuctl-dra|due to |=|: |\[\]`)
	var parts []string
	for _, part := range differs.Split(message, -1) {
		if part = strings.TrimSpace(strings.Trim(part, ` "`)); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

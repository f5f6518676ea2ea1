// Package shell writes words as a shell reads them, and text that a terminal can show.
package shell

import (
	"strings"
	"unicode"
)

// Quoted returns words as they are typed in a shell.
func Quoted(words ...string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-"
	shown := make([]string, len(words))
	for i, word := range words {
		shown[i] = word
		if word == "" || strings.Trim(word, plain) != "" {
			shown[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(shown, " ")
}

// Printable replaces the control characters of what files and names say, which would
// steer the terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Package shell writes words as a shell reads them.
package shell

import "strings"

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

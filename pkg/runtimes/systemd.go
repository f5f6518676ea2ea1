package runtimes

import (
	"path"
	"slices"
	"strings"
)

// serviceArgs are the words of the command that systemd starts a service with (systemd.service(5), systemd.unit(5)), with
// the variables that its files set filled in; nil if there is no such unit. A word with a $ in it is not known.
func (m machine) serviceArgs(unit string) (args []string) {
	env := map[string]string{}
	for _, file := range m.unitFiles(unit) {
		data, _ := m.Read(file, configMax)
		for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch strings.TrimSpace(key) {
			case "ExecStart":
				args = words(strings.TrimLeft(value, "@-:+!")) // an empty one takes back those before
			case "Environment":
				setVariables(env, words(value))
			case "EnvironmentFile":
				text, _ := m.Read(strings.TrimPrefix(strings.TrimSpace(value), "-"), configMax)
				for line := range strings.Lines(string(text)) {
					setVariables(env, []string{strings.Trim(strings.TrimSpace(line), `"'`)})
				}
			}
		}
	}
	var filled []string
	for _, word := range args {
		name := strings.Trim(strings.TrimPrefix(word, "$"), "{}")
		switch value, known := env[name]; {
		case strings.HasPrefix(word, "$") && !strings.HasPrefix(word, "${") && known: // it may be several words
			filled = append(filled, strings.Fields(value)...)
		default:
			for name, value := range env {
				word = strings.ReplaceAll(word, "${"+name+"}", value)
			}
			filled = append(filled, word)
		}
	}
	return filled
}

// unitFiles are the file of a unit and those that change it, in the order of reading.
func (m machine) unitFiles(unit string) (files []string) {
	var changes []string
	for _, dir := range []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"} {
		file := dir + "/systemd/system/" + unit
		if len(files) == 0 && m.Exists(file) {
			files = []string{file}
		}
		more, _ := m.Glob(file + ".d/*.conf")
		for _, name := range more { // a file of the same name in a directory before this one hides it
			if !slices.ContainsFunc(changes, func(c string) bool { return path.Base(c) == path.Base(name) }) {
				changes = append(changes, name)
			}
		}
	}
	slices.SortFunc(changes, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return append(files, changes...)
}

// words splits a line where there are blanks that are not in quotes.
func words(line string) (all []string) {
	quote, begun, word := rune(0), false, ""
	for _, c := range line + " " {
		switch {
		case quote == 0 && (c == '"' || c == '\''), c == quote && quote != 0:
			quote, begun = c-quote, true // opened, or closed
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if begun {
				all = append(all, word)
			}
			begun, word = false, ""
		default:
			begun, word = true, word+string(c)
		}
	}
	return all
}

func setVariables(env map[string]string, assignments []string) {
	for _, a := range assignments {
		if name, value, ok := strings.Cut(a, "="); ok {
			env[name] = strings.Trim(value, `"'`)
		}
	}
}

package runtimes

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/lazy"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// command is how a program of the machine is started: as its process was, or as systemd
// would start it.
type command struct {
	args  []string          // the program and its arguments; nil: not known
	env   map[string]string // what is set for it
	by    string            // the file that says so, on the machine; "": there is none
	runs  bool              // it is that of a process
	fault *finding.Finding  // why the files do not tell, or why systemd does not start it
}

// commandOf returns the command of the first process with one of some names
// (proc_pid_comm(5)) that wanted takes (nil: any), or else that of a unit.
func (m machine) commandOf(unit string, wanted func(dir string) bool, names ...string) command {
	for _, dir := range m.processes(names...) {
		cmdline, err := m.Read(dir+"/cmdline", configMax)
		// A process that has ended has no arguments any more.
		if err != nil || len(cmdline) == 0 || wanted != nil && !wanted(dir) {
			continue
		}
		c := command{args: strings.Split(string(cmdline), "\x00"), by: dir + "/cmdline", runs: true}
		if environ, err := m.Read(dir+"/environ", configMax); err == nil {
			c.env = map[string]string{}
			assign(c.env, strings.Split(string(environ), "\x00"))
		} else {
			c.env = m.service(unit).env
		}
		return c
	}
	return m.service(unit)
}

// processes are the directories below /proc of processes of the machine with one of some
// names.
func (m machine) processes(names ...string) (dirs []string) {
	all, _ := m.Glob("/proc/[0-9]*/comm")
	for _, file := range all { // comm can be read even of a process that hangs
		dir := path.Dir(file)
		if comm, _ := m.Read(file, configMax); slices.Contains(names, strings.TrimSuffix(string(comm), "\n")) && !m.inContainer(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// inContainer reports whether a process has a PID in a namespace below that of /proc, as
// one of Docker in Docker has. Unlike the link ns/pid, each user may read that.
func (m machine) inContainer(dir string) bool { return len(m.status(dir, "NSpid")) > 1 }

// ofRoot reports whether a process has the user id 0. A process that does not tell counts
// as root's.
func (m machine) ofRoot(dir string) bool {
	ids := m.status(dir, "Uid")
	return len(ids) == 0 || ids[0] == "0"
}

// status returns the words of a field of a process's status (proc_pid_status(5)).
func (m machine) status(dir, field string) []string {
	text, _ := m.Read(dir+"/status", configMax)
	for line := range strings.Lines(string(text)) {
		if words, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.Fields(words)
		}
	}
	return nil
}

// service returns the command that systemd starts a service with (systemd.service(5),
// systemd.exec(5), systemd.unit(5)). It is the zero value if there is no such unit, or
// systemd does not start it because it is masked.
func (m machine) service(unit string) command {
	files, err := m.unitFiles(unit)
	u := unitReader{machine: m, unit: unit, at: m.whole("/etc/systemd/system/" + unit + ".d")}
	if len(files) == 0 {
		return command{}
	}
	for _, file := range files {
		data, readErr := m.Read(file, configMax)
		if readErr != nil && err == nil {
			u.at, err = m.whole(file), readErr
		}
		u.read(string(data))
	}
	if err != nil {
		u.fault = unreadable(u.at, "", err)
	}
	u.at = m.whole(files[0])
	c := command{by: files[0], env: u.environment()}
	switch {
	case u.fault != nil: // what was read is not all
	case len(u.commands) != 1:
		u.refuse(fmt.Sprintf("it has %d commands to start, and must have one", len(u.commands)), "correct ExecStart= in it and in its drop-ins")
	default:
		c.args = u.commands[0].expand(c.env)
	}
	c.fault = u.fault
	return c
}

// unitFiles are the file of a unit and its drop-ins, in the order of reading; none if it
// is masked: a unit that is a link to /dev/null or empty. A drop-in hides those of its
// name in directories after it.
func (m machine) unitFiles(unit string) (files []string, err error) {
	file := m.unitFile(unit)
	if file == "" || m.isNull(file) {
		return nil, nil
	}
	var patterns []string
	// Those for each service give way to those for this one.
	for _, name := range []string{unit, "service"} {
		for _, dir := range unitDirs() {
			patterns = append(patterns, dir+"/systemd/system/"+name+".d/*.conf")
		}
	}
	changes, err := m.dropIns(patterns...)
	return append([]string{file}, slices.DeleteFunc(changes, m.isNull)...), err
}

// dropIns are the files of some patterns, ordered by their names. A file hides those of
// its name of patterns after its own.
func (m machine) dropIns(patterns ...string) (files []string, err error) {
	for _, pattern := range patterns {
		more, listErr := m.Glob(pattern)
		err = cmp.Or(err, listErr)
		for _, file := range more {
			if !slices.ContainsFunc(files, func(f string) bool { return path.Base(f) == path.Base(file) }) {
				files = append(files, file)
			}
		}
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	return files, err
}

// isNull reports whether a file of a unit says only that those after it do not count.
func (m machine) isNull(file string) bool {
	real, err := m.Resolve(file)
	if err != nil {
		return false
	}
	info, err := os.Stat(real)
	null, _ := m.Resolve("/dev/null")
	return real == null || err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// unitReader collects what the files of a service say, in the order of reading.
type unitReader struct {
	machine
	unit     string
	at       location // the file that is read
	commands []execLine
	set      []string // assignments of Environment=
	files    []string // of EnvironmentFile=, with a - before those that may be missing
	unset    []string // of UnsetEnvironment=
	fault    *finding.Finding
}

// execLine is a command as it is written.
type execLine struct {
	words   []string
	literal bool // no variables are filled in
}

func (u *unitReader) refuse(message, remedy string) {
	u.fault = cmp.Or(u.fault, newFinding(finding.ConfigRefused, u.at, "systemd does not start "+u.unit+" with this: "+message,
		remedy+", then systemctl daemon-reload"))
}

// read reads a unit file or a drop-in. An empty value takes back those before it.
func (u *unitReader) read(text string) {
	serviceSettings(text, func(key, value string) {
		switch key {
		case "ExecStart":
			u.exec(value)
		case "Environment":
			u.set = u.more(u.set, value, words(value, true)...)
		case "EnvironmentFile":
			u.files = u.more(u.files, value, value)
		case "UnsetEnvironment":
			u.unset = u.more(u.unset, value, words(value, true)...)
		}
	})
}

// more adds the words of a value to a list. An empty value empties it.
func (u *unitReader) more(list []string, value string, words ...string) []string {
	if value == "" {
		return nil
	}
	for _, word := range words {
		list = append(list, u.specifiers(word))
	}
	return list
}

// exec adds the commands of a line, which a ; between them separates.
func (u *unitReader) exec(value string) {
	line := strings.TrimLeft(value, "@-:+!|")
	flags := value[:len(value)-len(line)]
	if line == "" {
		u.commands = nil
	}
	var e *execLine
	for _, word := range words(line, true) {
		switch {
		case word == ";":
			e = nil
			continue
		case e == nil:
			u.commands = append(u.commands, execLine{literal: strings.Contains(flags, ":")})
			e = &u.commands[len(u.commands)-1]
		case word == `\;`:
			word = ";"
		}
		e.words = append(e.words, u.specifiers(word))
	}
	// With @ the word after the program is its name.
	if strings.Contains(flags, "@") && e != nil && len(e.words) > 1 {
		e.words = slices.Delete(e.words, 1, 2)
	}
}

// specifiers fills in what stands behind a % (systemd.unit(5), Specifiers). Those that
// only the running machine knows stay.
func (u *unitReader) specifiers(word string) string {
	name := strings.TrimSuffix(u.unit, path.Ext(u.unit))
	return strings.NewReplacer("%%", "%", "%n", u.unit, "%N", name, "%p", name, "%P", name, "%i", "", "%I", "", "%t", "/run", "%S", "/var/lib",
		"%C", "/var/cache", "%L", "/var/log", "%E", "/etc", "%T", "/tmp", "%V", "/var/tmp",
		"%h", "/root", "%u", "root", "%U", "0", "%g", "root", "%G", "0").Replace(word)
}

// environment returns the variables that the files set: those of Environment=, over them
// those of the files, without the unset ones.
func (u *unitReader) environment() map[string]string {
	env := map[string]string{}
	assign(env, u.set)
	for _, name := range u.files {
		pattern, optional := strings.CutPrefix(name, "-")
		found, err := []string{pattern}, error(nil)
		if strings.ContainsAny(pattern, "*?[") {
			found, err = u.Glob(pattern)
		}
		for _, file := range found {
			var data []byte
			if data, err = u.Read(file, configMax); err != nil {
				break
			}
			assign(env, environmentLines(string(data)))
		}
		switch {
		case err == nil && len(found) > 0, optional && (err == nil || host.IsAbsent(err)):
		case err == nil, host.IsAbsent(err):
			u.refuse("there is no "+u.Shown(pattern)+", which EnvironmentFile= names", "make the file, or write EnvironmentFile=-"+pattern)
		default:
			u.fault = cmp.Or(u.fault, unreadable(u.whole(pattern), "", err))
		}
	}
	for _, name := range u.unset {
		if key, value, exact := strings.Cut(name, "="); !exact || env[key] == value {
			delete(env, key)
		}
	}
	return env
}

// variableName is the name of a variable that systemd takes (systemd.exec(5),
// Environment=).
var variableName = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_]*$`)

// assign sets variables as NAME=VALUE says; the last one counts, and what has no such
// form none.
func assign(env map[string]string, assignments []string) {
	for _, a := range assignments {
		if name, value, ok := strings.Cut(a, "="); ok && variableName().MatchString(name) {
			env[name] = value
		}
	}
}

// expand fills in variables, in one pass: $NAME as a word of its own may become several
// words or none, ${NAME} within a word is what it is, and $$ is $ (systemd.service(5),
// Command lines). What is not set is empty.
func (e execLine) expand(env map[string]string) (args []string) {
	if e.literal {
		return e.words
	}
	for i, word := range e.words {
		name, whole := strings.CutPrefix(word, "$")
		switch {
		case i == 0:
			args = append(args, word)
		case whole && !strings.HasPrefix(name, "{") && !strings.HasPrefix(name, "$"):
			args = append(args, words(env[name], false)...)
		default:
			args = append(args, fillIn(word, env))
		}
	}
	return args
}

func fillIn(word string, env map[string]string) string {
	var filled strings.Builder
	for {
		before, rest, found := strings.Cut(word, "$")
		filled.WriteString(before)
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "{"), "}")
		switch {
		case !found:
			return filled.String()
		case strings.HasPrefix(rest, "$"):
			filled.WriteString("$")
			word = rest[1:]
		case strings.HasPrefix(rest, "{") && closed:
			filled.WriteString(env[name])
			word = after
		default:
			filled.WriteString("$")
			word = rest
		}
	}
}

// serviceSettings calls set for each line KEY=VALUE in the section Service of a unit file
// (systemd.syntax(7)).
func serviceSettings(text string, set func(key, value string)) {
	section, before := "", ""
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff") + "\n") {
		line = strings.TrimRight(strings.TrimLeft(line, " \t\r\n"), "\r\n")
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue // also between a line and its continuation
		}
		line = before + line
		if cut := strings.TrimRight(line, `\`); (len(line)-len(cut))%2 == 1 {
			before = line[:len(line)-1] + " "
			continue
		}
		before = ""
		key, value, ok := strings.Cut(line, "=")
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "["):
			section = line
		case ok && section == "[Service]":
			set(strings.TrimSpace(key), strings.TrimSpace(value))
		}
	}
}

// words splits a line at blanks that are not in quotes, and takes the quotes away, also
// those within a word (systemd.syntax(7), Quoting). With escapes a \ is read as in C, and
// without it stands for the character after it. A quote that is not closed ends with the
// line.
func words(line string, escapes bool) (all []string) {
	quote, word := byte(0), []byte(nil) // nil: no word has begun
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && i+1 < len(line):
			text, length := line[i+1:i+2], 2
			if escapes {
				text, length = unescape(line[i:])
			}
			word = append(word, text...)
			i += length - 1
		case quote == 0 && (c == '"' || c == '\''), quote != 0 && c == quote:
			quote, word = c-quote, slices.Grow(word, 1) // opened, or closed: a word has begun
		case quote == 0 && strings.IndexByte(" \t\r\n", c) >= 0:
			if word != nil {
				all = append(all, string(word))
			}
			word = nil
		default:
			word = append(word, c)
		}
	}
	if word != nil {
		all = append(all, string(word))
	}
	return all
}

// unescape reads the escape that a text begins with, and how long it is. One that is not
// known stays.
func unescape(text string) (string, int) {
	switch text[1] {
	case 's':
		return " ", 2
	case '"', '\'':
		return text[1:2], 2
	}
	char, multibyte, rest, err := strconv.UnquoteChar(text, 0)
	switch length := len(text) - len(rest); {
	case err != nil:
		return text[:2], 2
	case multibyte:
		return string(char), length
	default:
		return string([]byte{byte(char)}), length
	}
}

// environmentLines are the assignments of a file of EnvironmentFile= (systemd.exec(5)):
// one on a line; a value in quotes may go over several.
func environmentLines(text string) (all []string) {
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		name, _, ok := strings.Cut(strings.TrimLeft(line, " \t\r"), "=")
		switch {
		case strings.HasPrefix(name, "#"), strings.HasPrefix(name, ";"):
			for strings.HasSuffix(line, `\`) && rest != "" { // a comment may be continued
				line, rest, _ = strings.Cut(rest, "\n")
			}
			text = rest
		case !ok:
			text = rest
		default:
			_, text, _ = strings.Cut(text, "=")
			var value string
			value, text = environmentValue(text)
			all = append(all, strings.TrimSpace(name)+"="+value)
		}
	}
	return all
}

// environmentValue reads the value that a text begins with, up to the end of its line.
func environmentValue(text string) (value, rest string) {
	var all []byte
	// blank: between quotes, and before the value. What is behind kept are blanks at the
	// end.
	blank, kept := true, 0
	for text != "" && text[0] != '\n' {
		next := byteAt(text, 1)
		switch c := text[0]; {
		case blank && (c == '"' || c == '\''):
			var part []byte
			part, text = quotedValue(text[1:], c)
			all = append(all, part...)
			kept = len(all)
			continue
		case blank && isBlank(c):
			text = text[1:]
			continue
		case c == '\\' && next == '\n':
			text = text[2:]
			continue
		case c == '\\' && next != 0:
			all, text = append(all, next), text[2:]
		default:
			all, text = append(all, c), text[1:]
		}
		blank = false
		if !isBlank(all[len(all)-1]) {
			kept = len(all)
		}
	}
	return string(all[:kept]), strings.TrimPrefix(text, "\n")
}

// quotedValue reads up to the quote that ends a part of a value, or to the end of the
// text.
func quotedValue(text string, quote byte) (value []byte, rest string) {
	for i := 0; i < len(text); i++ {
		c, next := text[i], byteAt(text, i+1)
		switch escapes := c == '\\' && quote == '"'; {
		case c == quote:
			return value, text[i+1:]
		case escapes && next == '\n':
			i++
		case escapes && strings.IndexByte("\"\\`$", next) >= 0:
			value = append(value, next)
			i++
		default:
			value = append(value, c)
		}
	}
	return value, ""
}

// byteAt returns a byte of a text; 0 behind its end.
func byteAt(text string, i int) byte {
	if i < len(text) {
		return text[i]
	}
	return 0
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

package cli

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// Screen is what people see of a command, and what it can show. The zero value is a pipe
// whose reader knows UTF-8.
type Screen struct {
	Width      int  // in columns, of the terminal that Out is; 0: Out is no terminal
	Redraws    bool // what stands on Out can be erased
	ErrRedraws bool // what stands on Err can be erased
	ColorOut   bool // Out shows colours
	ColorErr   bool // Err shows colours
	ASCII      bool // characters beyond ASCII have to be replaced
}

// usualWidth is the width in columns of a terminal that does not know its own, such as a
// serial line.
const usualWidth = 80

// The values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// colorFlag adds --color.
func (t *Terminal) colorFlag(f *pflag.FlagSet) {
	f.StringVar(&t.Color, "color", colorAuto, "colour states and severities `WHEN`: auto (on a terminal), always or never")
}

// setScreen finds out what the streams show, by the environment and --color.
func (t *Terminal) setScreen(env func(string) (string, bool)) error {
	value := func(name string) string {
		text, _ := env(name)
		return text
	}
	dumb := value("TERM") == "" || value("TERM") == "dumb"
	auto := value("NO_COLOR") == ""
	t.Screen = Screen{Width: widthOf(t.Out), ASCII: isASCII(env)}
	t.Screen.Redraws, t.Screen.ErrRedraws = t.Screen.Width > 0 && !dumb, IsTerminal(t.Err) && !dumb
	switch t.Color {
	case colorAuto:
		t.Screen.ColorOut, t.Screen.ColorErr = auto && t.Screen.Redraws, auto && t.Screen.ErrRedraws
	case colorAlways:
		t.Screen.ColorOut, t.Screen.ColorErr = true, true
	case colorNever:
	default:
		return Usage("--color %s: expected auto, always or never", t.Color)
	}
	return nil
}

// Aside is the terminal for what is written to it later: it has the screen, as wide as
// that is now, and other streams.
func (t *Terminal) Aside(out, errOut io.Writer) Terminal {
	aside := *t
	aside.Screen.Width = widthOf(t.Out)
	aside.Out, aside.Err = out, errOut
	return aside
}

// widthOf is the width of a terminal in columns; 0 of what is none.
func widthOf(w io.Writer) int {
	f, isFile := w.(*os.File)
	if !isFile || !IsTerminal(w) {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return usualWidth
	}
	return int(size.Col)
}

// isASCII reports whether the locale has a charset other than UTF-8. Where no locale is
// set, as in most containers, the terminal outside of it knows UTF-8.
func isASCII(env func(string) (string, bool)) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale, _ := env(name); locale != "" {
			charset := strings.ToLower(strings.ReplaceAll(locale, "-", ""))
			return !strings.Contains(charset, "utf8")
		}
	}
	return false
}

// standIns have a stand-in for each character beyond ASCII that is printed for people.
// In a drawing it must be as wide.
func standIns() *strings.Replacer {
	return strings.NewReplacer(
		"°", "deg", "…", "...", "─", "-", "│", "|", "╳", "X", "┘", "+", "╭", "+", "╮", "+", "\uFFFD", "?",
	)
}

// plain is a text in the characters that the screen has.
func (s Screen) plain(text string) string {
	if !s.ASCII {
		return text
	}
	return standIns().Replace(text)
}

// People is Out for text that people read, in the characters that the screen has. Each
// write must have whole characters.
func (t *Terminal) People() io.Writer {
	if !t.Screen.ASCII {
		return t.Out
	}
	return plainWriter{t}
}

type plainWriter struct{ t *Terminal }

// Write writes a text with stand-ins.
func (w plainWriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(w.t.Out, w.t.Screen.plain(string(text)))
	return len(text), err
}

// Hue is a colour that repeats what a word says, and never says it alone.
type Hue string

// The hues, by their numbers in ECMA-48.
const (
	NoHue  Hue = ""
	Red    Hue = "31"
	Green  Hue = "32"
	Yellow Hue = "33"
)

// on is a text in the hue.
func (h Hue) on(text string) string {
	if h == NoHue {
		return text
	}
	return "\x1b[" + string(h) + "m" + text + "\x1b[0m"
}

// paintSeverity colours the severity that a finding begins with.
func paintSeverity(finding string) string {
	severity, rest, found := strings.Cut(finding, ":")
	if !found {
		return finding
	}
	hue := map[string]Hue{"error": Red, "warning": Yellow}[severity]
	return hue.on(severity) + ":" + rest
}

// PaintOut is a text on Out, in a hue where Out shows colours.
func (t *Terminal) PaintOut(h Hue, text string) string {
	if !t.Screen.ColorOut {
		return text
	}
	return h.on(text)
}

// cut is a text of at most so many columns, if that are enough for an ellipsis.
func (s Screen) cut(text string, width int) string {
	if columns(text) <= width {
		return text
	}
	kept, end := "", s.plain("…")
	for _, r := range text {
		if columns(kept+string(r)+end) > width {
			break
		}
		kept += string(r)
	}
	return kept + end
}

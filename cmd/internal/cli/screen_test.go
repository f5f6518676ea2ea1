package cli

import (
	"bytes"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, pair := range pairs {
			if n, value, _ := strings.Cut(pair, "="); n == name {
				return value, true
			}
		}
		return "", false
	}
}

// TestLocale: the first variable that is set decides, and without any the screen knows UTF-8.
func TestLocale(t *testing.T) {
	for set, ascii := range map[string]bool{
		"":                           false,
		"LANG=":                      false,
		"LANG=en_US.UTF-8":           false,
		"LANG=ko_KR.utf8":            false,
		"LANG=C":                     true,
		"LANG=ko_KR.eucKR":           true,
		"LC_ALL=C LANG=en_US.UTF-8":  true,
		"LC_ALL= LANG=en_US.UTF-8":   false,
		"LC_CTYPE=C.UTF-8 LANG=C":    false,
		"LC_ALL=POSIX LC_CTYPE=UTF8": true,
	} {
		if got := isASCII(environment(strings.Fields(set)...)); got != ascii {
			t.Errorf("%q: ASCII is %v", set, got)
		}
	}
}

// TestColors: without a terminal there are colours only if they are asked for, and a word that is wrong is refused.
func TestColors(t *testing.T) {
	for choice, want := range map[string]bool{colorAuto: false, colorAlways: true, colorNever: false} {
		term := Terminal{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Color: choice}
		if err := term.setScreen(environment("TERM=xterm", "NO_COLOR=1")); err != nil {
			t.Fatal(err)
		}
		if term.Screen.ColorOut != want || term.Screen.ColorErr != want || term.Screen.Redraws {
			t.Errorf("--color %s: %+v", choice, term.Screen)
		}
	}
	term := Terminal{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Color: "perhaps"}
	if err := term.setScreen(environment()); CodeOf(err) != ExitUsage {
		t.Errorf("--color perhaps: %v", err)
	}
	if got := paintSeverity("note: x: y"); got != "note: x: y" {
		t.Errorf("a note is %q", got)
	}
}

// TestFitting: a terminal has what fits, a pipe the usual columns.
func TestFitting(t *testing.T) {
	heads := []Column{{Name: "NAME"}, {Name: "PLACE", Room: Usual}, {Name: "SIZE", Room: Usual}, {Name: "MORE", Room: Roomy}, {Name: "WHY"}}
	for width, want := range map[int]string{
		0:  "NAME  PLACE  SIZE  WHY\nlpu0  slot4  1     it does not answer\n",
		80: "NAME  PLACE  SIZE  MORE  WHY\nlpu0  slot4  1     etc   it does not answer\n",
		42: "NAME  PLACE  SIZE  WHY\nlpu0  slot4  1     it does not answer\n",
		30: "NAME  PLACE  SIZE  WHY\nlpu0  slot4  1     it does no…\n",
		22: "NAME  PLACE  SIZE  WHY\nlpu0  slot4  1     it…\n",
		21: "NAME  PLACE  WHY\nlpu0  slot4  it does…\n",
		10: "NAME  WHY\nlpu0  it …\n",
		4:  "NAME  WHY\nlpu0  it…\n",
	} {
		var out bytes.Buffer
		term := Terminal{Out: &out, Screen: Screen{Width: width}}
		if err := term.WriteFitting(heads, [][]string{{"lpu0", "slot4", "1", "etc", "it does not answer"}}); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("width %d: got\n%swant\n%s", width, &out, want)
		}
	}
}

// TestColumnsOfCells: a cell keeps its line, and a Korean letter takes two columns.
func TestColumnsOfCells(t *testing.T) {
	var out bytes.Buffer
	term := Terminal{Out: &out}
	if err := term.WriteTable([]string{"FOR", "X"}, [][]string{{"학습", "a"}, {"a\nb\tc", ""}}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "FOR    X\n학습   a\na b c  -\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := (Screen{}).cut("학습 작업", 6); got != "학습 …" {
		t.Errorf("cut is %q", got)
	}
}

// TestStandIns: whatever the sources print beyond ASCII has a stand-in.
func TestStandIns(t *testing.T) {
	for _, dir := range []string{"../../../cmd", "../../../pkg", "../../../internal"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			// A drawing in SVG says itself in which characters it is.
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "/svg.go") ||
				strings.HasSuffix(path, "/glyphs.go") { // which has both sorts
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var s scanner.Scanner
			files := token.NewFileSet()
			s.Init(files.AddFile(path, -1, len(source)), source, nil, 0)
			for {
				_, kind, literal := s.Scan()
				if kind == token.EOF {
					return nil
				}
				plain := Screen{ASCII: true}.plain(literal)
				if (kind == token.STRING || kind == token.CHAR) && strings.Trim(plain, ascii()) != "" && !strings.HasSuffix(path, "/screen.go") {
					t.Errorf("%s prints what has no stand-in: %s", path, literal)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ascii has each character of ASCII.
func ascii() string {
	var all strings.Builder
	for c := range rune(128) {
		all.WriteRune(c)
	}
	return all.String()
}

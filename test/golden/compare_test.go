package main

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// golden is a run with one record on a node.
func golden(t *testing.T, r record, more map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{aboutFile: "device nodes: real\n", "orion-8/lpuctl_list": string(r.bytes())}
	maps.Copy(files, more)
	if err := add(files)(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listing is a record with every section that there can be; name and text replace one of them.
func listing(name, text string) record {
	r := record{
		{"command", "lpuctl list\n"}, {exitSection, "0\n"}, {documentSection, "name: lpu0\n"}, {stdoutSection, "NAME\nlpu0\n"},
		{stderrSection, "note: a word\n"}, {"file spec.json", "{}\n"},
	}
	for i := range r {
		if r[i].name == name {
			r[i].text = text
			return r
		}
	}
	return append(r, section{name, text})
}

func TestCompare(t *testing.T) {
	base := listing("command", "lpuctl list\n")
	for name, c := range map[string]struct {
		now     record
		more    map[string]string // records of NEW beside
		scripts int               // files that differ for scripts
		words   int               // files that differ only in words
		prints  string
	}{
		"same":       {now: base},
		"document":   {now: listing(documentSection, "label: lpu0\n"), scripts: 1, prints: "-name: lpu0\n+label: lpu0\n"},
		"exit":       {now: listing(exitSection, "3\n"), scripts: 1, prints: "-0\n+3\n"},
		"written":    {now: listing("file spec.json", "{}"), scripts: 1, prints: "(no newline at the end)"},
		"empty":      {now: listing("file empty", ""), scripts: 1, prints: "diff /dev/null NEW/orion-8/lpuctl_list (file empty)\n"},
		"removed":    {now: listing("removed ring.yaml", "ring.yaml\n"), scripts: 1, prints: "(removed ring.yaml)"},
		"table":      {now: listing(stdoutSection, "NAME\nlpu1\n"), words: 1, prints: "-lpu0\n+lpu1\n"},
		"stderr":     {now: listing(stderrSection, ""), words: 1, prints: "-note: a word\n"},
		"new record": {now: base, more: map[string]string{"plain/lpuctl": string(base.bytes())}, words: 1, prints: "NEW/plain/lpuctl (exit)"},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := golden(t, base, nil), golden(t, c.now, c.more)
			var all, brief strings.Builder
			err := compare(&all, was, is, true)
			if errors.Is(err, errDiffers) != (c.scripts > 0) || err != nil && c.scripts == 0 {
				t.Errorf("error %v", err)
			}
			total := 1 + len(c.more)
			want := fmt.Sprintf("%d of %d files differ in documents, specs or exit codes\n", c.scripts, total) +
				fmt.Sprintf("%d of %d files differ only in words for people\n", c.words, total)
			if !strings.HasSuffix(all.String(), want) || !strings.Contains(all.String(), c.prints) {
				t.Errorf("printed\n%swant %q and\n%s", &all, c.prints, want)
			}
			_ = compare(&brief, was, is, false) // as above
			if c.scripts == 0 && brief.String() != want {
				t.Errorf("without -words printed\n%swant\n%s", &brief, want)
			}
		})
	}
}

// A command that is gone breaks scripts.
func TestCompareGone(t *testing.T) {
	base := listing("command", "lpuctl list\n")
	was := golden(t, base, map[string]string{"orion-8/lpuctl_describe": string(base.bytes())})
	if err := compare(&strings.Builder{}, was, golden(t, base, nil), false); !errors.Is(err, errDiffers) {
		t.Errorf("error %v", err)
	}
}

// Runs that were made with and without device nodes say different things of the same lpuctl.
func TestCompareRefuses(t *testing.T) {
	base := listing("command", "lpuctl list\n")
	other := golden(t, base, map[string]string{aboutFile: "device nodes: none\n"})
	for _, dir := range []string{other, t.TempDir()} {
		if err := compare(&strings.Builder{}, golden(t, base, nil), dir, false); err == nil || errors.Is(err, errDiffers) {
			t.Errorf("%s: error %v", dir, err)
		}
	}
}

// What a command prints is never taken for the name of a section.
func TestParse(t *testing.T) {
	text := "exit\n\n\tstdout\nlast"
	got := parse(string(record{{stdoutSection, text}, {stderrSection, "x\n"}}.bytes()))
	if len(got) != 2 || !strings.HasPrefix(got[stdoutSection], text) || got[stderrSection] != "x\n" {
		t.Errorf("parsed %q", got)
	}
}

func TestStable(t *testing.T) {
	for text, want := range map[string]string{
		"time=2026-01-02T03:04:05.678+09:00 level=INFO\n":                    "time=TIME level=INFO\n",
		"{\"sinceBoot\":70743220726612,\"sum\":\"0a\"}\n":                    "{\"sinceBoot\":MOMENT,\"sum\":\"0a\"}\n",
		`{"request":"[{\"version\":\"a1b2\",\"go\":\"go1.26.8\",\"x\":1}]"}`: `{"request":"[{\"version\":\"VERSION\",\"go\":\"GO\",\"x\":1}]"}`,
		"/tmp/place/NODE/etc/cdi: no\n":                                      "NODE/etc/cdi: no\n",
		"lpuctl v1.2 (go1.26.8, linux/amd64)\n":                              "lpuctl VERSION (GO, linux/amd64)\n",
		"go: go1.26.8\nplatform: linux/amd64\nversion: a1b2\n":               "go: GO\nplatform: linux/amd64\nversion: VERSION\n",
		"  \"version\": \"a1b2\",\n  \"go\": \"go1.26.8\"\n":                 "  \"version\": \"VERSION\",\n  \"go\": \"GO\"\n",
		"  \"version\": \"1.7.35\"\n":                                        "  \"version\": \"1.7.35\"\n", // of a runtime
		"open lpu.json226128: no\n":                                          "open lpu.jsonRANDOM: no\n",
		"0000:43:00.1 renderD134 table.json:12\n":                            "0000:43:00.1 renderD134 table.json:12\n",
	} {
		if got := stable(text, "/tmp/place"); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

package runtimes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// What systemd starts. Words, escapes and specifiers are as systemd 252 shows them with --test;
// variables as systemd.service(5) and systemd.exec(5) say.
func TestService(t *testing.T) {
	const unit, env = "usr/lib/systemd/system/x.service", "etc/default/x"
	const dropIn = "etc/systemd/system/x.service.d/"
	service := func(lines ...string) string { return "[Service]\n" + strings.Join(lines, "\n") + "\n" }
	for name, test := range map[string]struct {
		files map[string]string
		want  string // the words, each in quotes; "" and the finding behind it if there is one
	}{
		"none":            {nil, ``},
		"a word":          {map[string]string{unit: service("ExecStart=/bin/x -a")}, `"/bin/x" "-a"`},
		"another section": {map[string]string{unit: service("ExecStart=/bin/x $A") + "[Install]\nEnvironment=A=1\n"}, `"/bin/x"`},
		"quotes and escapes": {map[string]string{
			unit: service(`ExecStart=-/bin/x a"b c"d 'x y' "z\"w" \x41 a\;b 100%% %n \; $$x "" \101`),
		}, `"/bin/x" "ab cd" "x y" "z\"w" "A" "a\\;b" "100%" "x.service" ";" "$x" "" "A"`},
		"a line goes on": {map[string]string{
			unit: service(`ExecStart=/bin/x a \`, `# not this`, `; nor this`, `  b\`, `c`),
		}, `"/bin/x" "a" "b" "c"`},
		"the name of the process": {map[string]string{unit: service(`ExecStart=@/bin/x y -a`)}, `"/bin/x" "-a"`},
		"no variables":            {map[string]string{unit: service(`ExecStart=:/bin/x $A ${A}`, `Environment=A=1`)}, `"/bin/x" "$A" "${A}"`},
		"the manual's example": {map[string]string{unit: service(`Environment="ONE=one" 'TWO=two two'`, `ExecStart=/bin/echo $ONE $TWO ${TWO}`)},
			`"/bin/echo" "one" "two" "two" "two two"`},
		"quotes in a variable": {map[string]string{
			unit: service(`Environment="TWO='two two' too" THREE=`, `ExecStart=/bin/echo $TWO $THREE ${THREE}`),
		}, `"/bin/echo" "two two" "too" ""`},
		"in one pass": {map[string]string{unit: service(`Environment=A=$${B} B=$${A} C=${B}`, `ExecStart=/bin/x ${A} ${B} $C`)},
			`"/bin/x" "$${B}" "$${A}" "${B}"`},
		"not set": {map[string]string{unit: service(`ExecStart=/bin/x $A a${A}b ${A $ x$y`)}, `"/bin/x" "ab" "${A" "x$y"`},
		"the last one counts": {map[string]string{
			unit: service(`Environment=A=1 A=2`, `Environment=A=3`, `ExecStart=/bin/x $A`),
		}, `"/bin/x" "3"`},
		"an empty one takes back": {map[string]string{
			unit: service(`Environment=A=1`, `Environment=`, `ExecStart=/bin/x $A-$B ${A}`),
		}, `"/bin/x" ""`},
		"unset": {map[string]string{
			unit: service(`Environment=A=1 B=2 C=3`, `UnsetEnvironment=A B=x C=3`, `ExecStart=/bin/x $A $B $C`),
		}, `"/bin/x" "2"`},
		"a file beats Environment": {map[string]string{
			unit: service(`EnvironmentFile=/etc/default/x`, `Environment=A=unit`, `ExecStart=/bin/x $A`), env: "A=file\n",
		}, `"/bin/x" "file"`},
		"a file taken back": {map[string]string{unit: service(`EnvironmentFile=/none`, `EnvironmentFile=`, `EnvironmentFile=-/etc/default/x`,
			`Environment=A=unit`, `ExecStart=/bin/x $A`), env: "B=file\n"}, `"/bin/x" "unit"`},
		"files in their order": {map[string]string{
			unit: service(`EnvironmentFile=/etc/default/*`, `EnvironmentFile=-/none`, `EnvironmentFile=-/none/*`, `ExecStart=/bin/x $A $B`),
			env:  "A=1\nB=2\n", env + "y": "A=3\n",
		}, `"/bin/x" "3" "2"`},
		"a file that is not there": {map[string]string{unit: service(`EnvironmentFile=/none`, `ExecStart=/bin/x`)}, ` config-refused`},
		"no file of a pattern":     {map[string]string{unit: service(`EnvironmentFile=/none/*`, `ExecStart=/bin/x`)}, ` config-refused`},
		"drop-ins": {map[string]string{
			unit:                                     service("Environment=A=0", "ExecStart=/bin/x $A"),
			dropIn + "20.conf":                       service("Environment=A=etc"),
			"run/systemd/system/x.service.d/20.conf": service("Environment=A=run"),
			"usr/lib/systemd/system/x.service.d/30.conf":   service("ExecStart=", "ExecStart=/bin/y $A $B"),
			"usr/lib/systemd/system/service.d/10.conf":     service("Environment=A=all B=all"),
			"usr/lib/systemd/system/service.d/20.conf":     service("Environment=B=hidden"),
			"etc/systemd/system/x.service.d/40.conf.saved": service("Environment=A=saved"),
		}, `"/bin/y" "etc" "all"`},
		"an empty drop-in hides": {map[string]string{
			unit: service("ExecStart=/bin/x $A"), dropIn + "a.conf": "", "usr/lib/systemd/system/x.service.d/a.conf": service("Environment=A=1"),
		}, `"/bin/x"`},
		"the unit in etc": {map[string]string{
			unit: service("ExecStart=/bin/x"), "etc/systemd/system/x.service": service("ExecStart=/bin/y"),
		}, `"/bin/y"`},
		"an empty unit":      {map[string]string{unit: service("ExecStart=/bin/x"), "etc/systemd/system/x.service": ""}, ``},
		"two commands":       {map[string]string{unit: service("ExecStart=/bin/x", "ExecStart=/bin/y")}, ` config-refused`},
		"two in a line":      {map[string]string{unit: service("ExecStart=/bin/x ; /bin/y")}, ` config-refused`},
		"cut":                {map[string]string{unit: "[Unit]\nDescription=x\n[Serv"}, ` config-refused`},
		"a byte order mark":  {map[string]string{unit: "\ufeff" + service("ExecStart = /bin/x\r")}, `"/bin/x"`},
		"too large to read":  {map[string]string{unit: strings.Repeat("#", configMax+1)}, ` config-unreadable`},
		"quotes not closed":  {map[string]string{unit: service(`ExecStart=/bin/x "a b`)}, `"/bin/x" "a b"`},
		"a line at the end":  {map[string]string{unit: service("ExecStart=/bin/x a \\")}, `"/bin/x" "a"`},
		"no such variable":   {map[string]string{unit: service("Environment=1A=1 =2 A-B=3 A", "ExecStart=/bin/x $1A $A-B $A")}, `"/bin/x"`},
		"an unknown place":   {map[string]string{unit: service("ExecStart=/bin/x %H %t/x")}, `"/bin/x" "%H" "/run/x"`},
		"a blank before all": {map[string]string{unit: " [Service]\n  ExecStart=/bin/x\n"}, `"/bin/x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, text := range test.files {
				writeFile(t, root, file, text)
			}
			for range 5 { // nothing depends on the order of a map
				c := machine{host.Root(root)}.service("x.service")
				var got string
				if c.args != nil {
					got = strings.Trim(fmt.Sprintf("%q", c.args), "[]")
				}
				if c.fault != nil {
					got += " " + string(c.fault.ID)
				}
				if got != test.want {
					t.Fatalf("got %s, want %s\n%+v", got, test.want, c.fault)
				}
			}
		})
	}
}

// A file of EnvironmentFile= as systemd.exec(5) says.
func TestEnvironmentLines(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nB=2":                            `["A=1" "B=2"]`,
		" A = 1 2 \t\r\nB=\n":                 `["A=1 2" "B="]`,
		"# A=1\n;B=2\nnothing\n\nC=3\n":       `["C=3"]`,
		"# A=1 \\\nB=2\nC=3\n":                `["C=3"]`,
		`A="1 2" ` + "\nB='3\n4'\nC=5":        `["A=1 2" "B=3\n4" "C=5"]`,
		`A="a\"b\\c\$d\e"`:                    `["A=a\"b\\c$d\\e"]`,
		`A='a\'`:                              `["A=a\\"]`,
		`A=a\ b\\c"d"`:                        `["A=a b\\c\"d\""]`,
		"A=a\\\nb\nB=\"c\\\nd\"\n":            `["A=ab" "B=cd"]`,
		`A="a"'b' "c"`:                        `["A=abc"]`,
		"A=\"not closed\nB=1":                 `["A=not closed\nB=1"]`,
		"A=--config=/x --log-level debug\n":   `["A=--config=/x --log-level debug"]`,
		"A=" + `\`:                            `["A=\\"]`,
		"":                                    `[]`,
		"A=\"  \"\nB='' \n":                   `["A=  " "B="]`,
		"\x00\xff=\n":                         `["\x00\xff="]`,
		"export A=1\n":                        `["export A=1"]`, // its name is none, and it sets nothing
		"A=1=2\n":                             `["A=1=2"]`,
		"A=x # no comment\n":                  `["A=x # no comment"]`,
		"KUBELET_KUBEADM_ARGS=\"--v=2 -x\"\n": `["KUBELET_KUBEADM_ARGS=--v=2 -x"]`,
	} {
		if got := fmt.Sprintf("%q", environmentLines(text)); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// What cannot be read is said by each runtime whose service it is, and nothing waits for it.
func TestUnreadableUnit(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"a FIFO":      func(path string) error { return unix.Mkfifo(path, 0o644) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a loop":      func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"a dead link": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		for program, file := range map[string]string{
			"containerd": "usr/lib/systemd/system/containerd.service.d/x.conf",
			"dockerd":    "etc/systemd/system/docker.service.d/x.conf",
			"crio":       "run/systemd/system/crio.service.d/x.conf",
		} {
			root := t.TempDir()
			unit := map[string]string{"containerd": "containerd", "dockerd": "docker", "crio": "crio"}[program]
			writeFile(t, root, "usr/bin/"+program, "")
			writeFile(t, root, "var/lib/dpkg/status", "Package: containerd\nStatus: install ok installed\nVersion: 2.2.9\n\n"+
				"Package: docker-ce\nStatus: install ok installed\nVersion: 28.2.2\n\n"+
				"Package: cri-o\nStatus: install ok installed\nVersion: 1.31.0\n\n")
			writeFile(t, root, "usr/lib/systemd/system/"+unit+".service", "[Service]\nExecStart=/usr/bin/"+program+"\n")
			writeFile(t, root, filepath.Dir(file)+"/README", "")
			if err := place(filepath.Join(root, file)); err != nil {
				t.Fatal(err)
			}
			all := Check(t.Context(), root, Options{SpecDir: "/var/run/cdi"})
			if len(all) != 1 || all[0].CDI != Unknown || all[0].Confirmed() ||
				!slices.ContainsFunc(all[0].Findings, func(f finding.Finding) bool {
					return f.ID == finding.ConfigUnreadable && f.File == filepath.Join(root, file)
				}) {
				t.Errorf("%s is %s: %+v", file, name, all)
			}
		}
	}
}

// A service that is masked, by a link to /dev/null, is not one.
func TestMaskedUnit(t *testing.T) {
	root := t.TempDir()
	writeFile(t, root, "usr/lib/systemd/system/x.service", "[Service]\nExecStart=/bin/x\n")
	writeFile(t, root, "etc/systemd/system/README", "")
	if err := os.Symlink("/dev/null", filepath.Join(root, "etc/systemd/system/x.service")); err != nil {
		t.Fatal(err)
	}
	if c := (machine{host.Root(root)}).service("x.service"); c.args != nil || c.fault != nil {
		t.Errorf("got %+v", c)
	}
}

// Whatever a unit and its file of variables hold, it has a command or it is said why not, always
// the same.
func FuzzUnit(f *testing.F) {
	f.Add("[Service]\nEnvironment=A=${B} \"B=$A b\"\nEnvironmentFile=-/e\nExecStart=-/bin/x $A ${B} \\\n $C\n", "C='a\nb' \nA=\"x\\\"\"\n")
	f.Add("[Service]\nExecStart=@/bin/x y \\x41\\u0041\\s\\q ; \\; $$ ${\n", "A=\\\n")
	f.Fuzz(func(t *testing.T, unit, env string) {
		root := t.TempDir()
		writeFile(t, root, "etc/systemd/system/x.service", unit)
		writeFile(t, root, "e", env)
		m := machine{host.Root(root)}
		c := m.service("x.service")
		if unit != "" && (c.args == nil) == (c.fault == nil) || c.fault != nil && (c.fault.Message == "" || c.fault.Remedy == "") {
			t.Errorf("%q has the command %q, and %+v", unit, c.args, c.fault)
		}
		for name, value := range c.env {
			if !variableName().MatchString(name) {
				t.Errorf("%q is set to %q", name, value)
			}
		}
		if again := m.service("x.service"); fmt.Sprint(again) != fmt.Sprint(c) && c.fault == nil {
			t.Errorf("%q is read as %q and as %q", unit, c.args, again.args)
		}
	})
}

// Whatever a file of variables holds, each value that is written out in quotes is read as it was.
func FuzzEnvironmentLines(f *testing.F) {
	f.Add("A=\"1\\\n2\"\nB='x\ny' z\n# c\\\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, a := range environmentLines(text) {
			name, value, ok := strings.Cut(a, "=")
			if !ok || len(a) > len(text) {
				t.Fatalf("%q has %q", text, a)
			}
			quoted := name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(value) + "\"\n"
			if again := environmentLines(quoted); variableName().MatchString(name) && (len(again) != 1 || again[0] != a) {
				t.Errorf("%q is written as %q, and read as %q", a, quoted, again)
			}
		}
	})
}

package person

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/test/await"
)

const passwd = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1::/:/bin/false
anna:x:1000:1000::/home/anna:/bin/sh
anna2:x:1000:1000::/home/anna:/bin/sh
bob:x:1001:1001::/home/bob:/bin/sh
inside:x:100500:100500::/:/bin/false
`

// machine is a root with these files in etc, and a resolver that knows carol (5000) and erin
// (100600), who are in no file, and writes down what it is asked. hang is a file; while it is there
// questions about uids 9000 to 9999 and 200000 to 299999 have no answer, and who hangs writes a line into a file "hangs".
func machine(t *testing.T, files map[string]string) (p *People, dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "etc/passwd"), passwd)
	for name, text := range files {
		write(t, filepath.Join(dir, "etc", name), text)
	}
	program(t, dir, "getent", `
case $2 in
carol|5000) echo 'carol:*:5000:5000::/home/carol:/bin/sh' ;;
erin|100600) echo 'erin:*:100600:100600::/home/erin:/bin/sh' ;;
lpu) echo 'lpu:x:990:anna,carol' ;;
9???|2?????) [ ! -e hang ] || echo $$ >> hangs
	while [ -e hang ]; do sleep 0.01; done
	exit 2 ;;
*) exit 2 ;;
esac`)
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	p = In(host.Root(dir), "lpu")
	p.resolver.limit = time.Hour // what hangs is ended by the test
	return p, dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// program is one in bin, which writes down what it is asked.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	file := filepath.Join(dir, "bin", name)
	write(t, file, "#!/bin/sh\ncd '"+dir+"'\necho "+name+" \"$@\" >> asked\n"+script+"\n")
	if err := os.Chmod(file, 0o700); err != nil {
		t.Fatal(err)
	}
}

// read returns the lines of a file; none if it is not there.
func read(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(data)), " ", "_"))
}

// TestWho: a user of passwd is itself, a subordinate uid its owner, and what is unclear is refused.
func TestWho(t *testing.T) {
	const subuid = `anna:100000:1000
1001:200000:0x10000
bob:200100:10
carol:300000:65536
# a comment
4242:400000:65536
bob:500000:65536
anna:560000:65536
root:700000:65536
containers:800000:65536
anna:1000:1
anna:-1:5
:900000:5
`
	p, dir := machine(t, map[string]string{"subuid": subuid})
	for _, c := range []struct {
		uid  int
		want Person
		says string // of a stranger
	}{
		{0, Person{0, "root", false}, ""},
		{1, Person{1, "daemon", false}, ""},
		{999, Person{999, "", false}, ""}, // of the system, and in no file
		{1000, Person{1000, "anna", false}, ""},
		{1001, Person{1001, "bob", false}, ""},
		{5000, Person{5000, "carol", false}, ""},
		{100000, Person{1000, "anna", true}, ""},
		{100999, Person{1000, "anna", true}, ""},
		{101000, Person{}, "of no user of this machine"},
		{200000, Person{1001, "bob", true}, ""},
		{200105, Person{1001, "bob", true}, ""}, // in two ranges of one owner
		{265535, Person{1001, "bob", true}, ""},
		{300000, Person{5000, "carol", true}, ""},
		{400000, Person{4242, "", true}, ""},
		{560000, Person{}, "of more than one user by " + dir + "/etc/subuid: bob, anna"},
		{100500, Person{}, "of more than one user by " + dir + "/etc/subuid: inside, anna"},
		{100600, Person{}, "of more than one user by " + dir + "/etc/subuid: erin, anna"},
		{700000, Person{}, "none of root's rights"},
		{800000, Person{}, "containers, which is no user"},
		{900000, Person{}, "of no user of this machine"},
		{4294967294, Person{}, "of no user of this machine"},
	} {
		got, err := p.Who(t.Context(), c.uid)
		s, stranger := errors.AsType[*Stranger](err)
		if got != c.want || stranger != (c.says != "") || stranger && (!strings.Contains(s.Message, c.says) || s.Remedy == "") {
			t.Errorf("%d: %+v, %v", c.uid, got, err)
		}
	}
}

// TestRoot: root is root, whatever the files say.
func TestRoot(t *testing.T) {
	p, dir := machine(t, map[string]string{"subuid": "anna:0:65536\n"})
	for _, want := range []Person{{0, "root", false}, {0, "", false}} {
		if got, err := p.Who(t.Context(), 0); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
		write(t, filepath.Join(dir, "etc/passwd"), "")
	}
}

// TestFilesThatChange: what was carried out of a remedy counts at once.
func TestFilesThatChange(t *testing.T) {
	p, dir := machine(t, nil)
	if _, err := p.Who(t.Context(), 100000); err == nil {
		t.Error("it is a user's")
	}
	write(t, filepath.Join(dir, "etc/subuid"), "anna:100000:1\n")
	if got, err := p.Who(t.Context(), 100000); err != nil || got != (Person{1000, "anna", true}) {
		t.Errorf("%+v, %v", got, err)
	}
	write(t, filepath.Join(dir, "etc/subuid"), "anna:100000:1\nbob:100000:1\n")
	if got, err := p.Who(t.Context(), 100000); err == nil {
		t.Errorf("%+v", got)
	}
	if err := os.Mkdir(filepath.Join(dir, "etc/nsswitch.conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Who(t.Context(), 1000); err == nil || !strings.Contains(err.Error(), "nsswitch.conf") {
		t.Error(err)
	}
}

// TestAnotherSource: where newuidmap reads no file, getsubids says which ranges the members of the
// group have.
func TestAnotherSource(t *testing.T) {
	p, dir := machine(t, map[string]string{"subuid": "bob:600000:65536\n", "nsswitch.conf": "passwd: files\nsubid: sss files\n"})
	who := func(uid int, want Person) {
		t.Helper()
		if got, err := p.Who(t.Context(), uid); got != want || (err == nil) != (want != Person{}) {
			t.Errorf("%d: %+v, %v", uid, got, err)
		}
	}
	if !isForeign("files") { // it is not on this machine
		who(600000, Person{1001, "bob", true})
	}
	program(t, dir, "getsubids", `
case $1 in
carol) printf '0: carol 600000 65536\n1: carol 700000 65536\n' ;;
*) echo 'Error fetching ranges' >&2; exit 1 ;;
esac`)
	who(600000, Person{5000, "carol", true})
	who(765535, Person{5000, "carol", true})
	who(765536, Person{})
	who(5000, Person{5000, "carol", false})
	asked := read(t, filepath.Join(dir, "asked"))
	who(1001, Person{1001, "bob", false})
	if now := read(t, filepath.Join(dir, "asked")); len(now) != len(asked) {
		t.Errorf("of a user of passwd it is asked: %v", now[len(asked):])
	}
}

// TestAnswersAreKept: also that there is no such user. When an answer is old it is asked once more,
// and what is not answered then stays as it was.
func TestAnswersAreKept(t *testing.T) {
	p, dir := machine(t, nil)
	now := time.Now()
	p.resolver.now = func() time.Time { return now }
	asks := func(what string, uid, want int) {
		t.Helper()
		before := len(read(t, filepath.Join(dir, "asked")))
		for range 3 {
			_, _ = p.Who(t.Context(), uid)
		}
		if n := len(read(t, filepath.Join(dir, "asked"))) - before; n != want {
			t.Errorf("%s: asked %d times, want %d", what, n, want)
		}
	}
	asks("a user", 5000, 1)
	asks("no user", 9000, 1)
	now = now.Add(kept - 1)
	asks("a user that is known", 5000, 0)
	asks("no user, as is known", 9000, 0)
	now = now.Add(1)
	asks("a user that was known", 5000, 1)
	asks("no user, as was known", 9000, 1)
	now = now.Add(kept)
	program(t, dir, "getent", "kill -9 $$")
	asks("one that does not answer now", 5000, 1)
	if got, err := p.Who(t.Context(), 5000); err != nil || got.Name != "carol" {
		t.Errorf("%+v, %v", got, err)
	}
	asks("one that has never answered", 5001, 1)
	if _, err := p.Who(t.Context(), 5001); err == nil || !strings.Contains(err.Error(), "cannot be found out") {
		t.Error(err)
	}
	now = now.Add(keptFailed)
	asks("one that did not answer", 5000, 1)
}

// TestNoResolver: without getent the files say all.
func TestNoResolver(t *testing.T) {
	p, _ := machine(t, map[string]string{"subuid": "anna:100000:1\n"})
	t.Setenv("PATH", t.TempDir())
	for uid, want := range map[int]Person{1000: {1000, "anna", false}, 100000: {1000, "anna", true}, 5000: {}} {
		if got, err := p.Who(t.Context(), uid); got != want || (err == nil) != (want != Person{}) {
			t.Errorf("%d: %+v, %v", uid, got, err)
		}
	}
}

// hanging is a machine whose resolver hangs.
func hanging(t *testing.T) (p *People, dir string) {
	t.Helper()
	p, dir = machine(t, map[string]string{"subuid": "anna:200000:65536\n"})
	write(t, filepath.Join(dir, "hang"), "")
	return p, dir
}

// free ends what hangs.
func free(t *testing.T, p *People, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "hang")); err != nil {
		t.Fatal(err)
	}
	await.For(t, "no program runs", func() bool { return len(p.resolver.atOnce) == 0 })
}

// TestAHangingResolverDelaysNoOther: while one question has no answer others have theirs.
func TestAHangingResolverDelaysNoOther(t *testing.T) {
	p, dir := hanging(t)
	ctx, cancel := context.WithCancel(t.Context())
	hangs := make(chan error)
	go func() {
		_, err := p.Who(ctx, 9000)
		hangs <- err
	}()
	await.For(t, "it hangs", func() bool { return len(read(t, filepath.Join(dir, "hangs"))) == 1 })
	for uid, name := range map[int]string{0: "root", 1000: "anna", 5000: "carol"} {
		if got, err := p.Who(t.Context(), uid); err != nil || got.Name != name {
			t.Errorf("%d: %+v, %v", uid, got, err)
		}
	}
	cancel()
	if err := <-hangs; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	free(t, p, dir)
}

// TestAHangingResolverIsEnded: after its limit, with what it has started.
func TestAHangingResolverIsEnded(t *testing.T) {
	p, dir := machine(t, map[string]string{"subuid": "anna:200000:65536\n"})
	program(t, dir, "getent", "sleep 1000 & echo $! >> hangs; wait")
	p.resolver.limit = time.Millisecond
	for n := 0; n == 0; n = len(read(t, filepath.Join(dir, "hangs"))) { // until it has got as far as that
		if _, err := p.Who(t.Context(), 9000); err == nil || !strings.Contains(err.Error(), "cannot be found out") {
			t.Fatal(err)
		}
		p.resolver.limit *= 2
		p.resolver.now = func() time.Time { return time.Now().Add(time.Hour) }
		clear(p.resolver.lines)
	}
	await.For(t, "what it has started is gone", func() bool {
		command, _ := os.ReadFile("/proc/" + read(t, filepath.Join(dir, "hangs"))[0] + "/cmdline")
		return !strings.Contains(string(command), "1000")
	})
	await.For(t, "no turn is taken", func() bool { return len(p.resolver.atOnce) == 0 })
	// Whose range it is stands in a file.
	if got, err := p.Who(t.Context(), 200000); err != nil || got != (Person{1000, "anna", true}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestAFloodOfUids: one program at a time runs for a user with many uids, so many of them wait, and
// others have answers.
func TestAFloodOfUids(t *testing.T) {
	p, dir := hanging(t)
	var all sync.WaitGroup
	for i := range maxCallers {
		all.Go(func() {
			if got, err := p.Who(t.Context(), 200000+i); err != nil || got.Name != "anna" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	await.For(t, "all wait", func() bool {
		p.resolver.mu.Lock()
		defer p.resolver.mu.Unlock()
		l := p.resolver.lines["anna"]
		return l != nil && l.callers == maxCallers && len(read(t, filepath.Join(dir, "hangs"))) > 0
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel() // so that none waits
	for i := range 3 {
		if got, err := p.Who(gone, 250000+i); !errors.Is(err, ErrBusy) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if got, err := p.Who(t.Context(), 5000); err != nil || got.Name != "carol" {
		t.Errorf("%+v, %v", got, err)
	}
	if n := len(p.resolver.atOnce); n != 1 {
		t.Errorf("%d programs run", n)
	}
	if n := len(read(t, filepath.Join(dir, "hangs"))); n != 1 {
		t.Errorf("%d programs have started", n)
	}
	free(t, p, dir)
	all.Wait()
}

// TestNoTurn: who gets no turn in time is sent away as busy, and takes no turn of others.
func TestNoTurn(t *testing.T) {
	p, _ := machine(t, nil)
	p.resolver.limit = time.Millisecond
	for range atOnce {
		p.resolver.atOnce <- struct{}{}
	}
	if _, err := p.Who(t.Context(), 5000); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	if n := len(p.resolver.lines["5000"].turn); n != 0 {
		t.Fatal("the turn is taken")
	}
	for range atOnce {
		<-p.resolver.atOnce
	}
	p.resolver.limit = time.Hour
	p.resolver.now = func() time.Time { return time.Now().Add(kept) }
	if got, err := p.Who(t.Context(), 5000); err != nil || got.Name != "carol" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWhatIsKeptIsBounded: of many uids of one user, and of many users.
func TestWhatIsKeptIsBounded(t *testing.T) {
	p, _ := machine(t, nil)
	t.Setenv("PATH", t.TempDir())
	now := time.Now()
	p.resolver.now = func() time.Time { return now }
	for i := range maxAnswers + 10 {
		if _, err := p.resolver.ask(t.Context(), "anna", "getent", strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(p.resolver.lines["anna"].answers); n != maxAnswers {
		t.Errorf("%d answers", n)
	}
	for i := range maxLines + 10 {
		now = now.Add(kept)
		if _, err := p.resolver.ask(t.Context(), strconv.Itoa(i), "getent"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(p.resolver.lines); n > maxLines {
		t.Errorf("%d lines", n)
	}
}

// TestALongAnswer: what a program prints beyond a limit is read, so that it ends, and not kept.
func TestALongAnswer(t *testing.T) {
	p, dir := machine(t, nil)
	program(t, dir, "getent", "head -c 1000000 /dev/zero")
	if text, err := p.resolver.ask(t.Context(), "anna", "getent", "passwd"); len(text) != outputMax || err != nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// TestSubidSource: the first line counts, and of that the first source, as in newuidmap.
func TestSubidSource(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "subid: sss": "sss", "SUBID:\tsss files\n": "sss", "subid: files sss": "", "subid:": "", "# subid: sss\n": "",
		"passwd: sss\nsubid: a\nsubid: b": "a", "subid:sss": "",
	} {
		if got := subidSource([]byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzParseSubuid: whatever the file says, a range is one of its lines, and has its numbers.
func FuzzParseSubuid(f *testing.F) {
	for _, text := range []string{
		"anna:100000:65536\n", "1000:0x186a0:0200000\n", "anna:1:2:3\n", ":1:2\n", "a:b:c", "anna: +5:1\n",
		"anna:4294967295:18446744073709551615\n", "anna:0b1:1\nanna:0o1:1\nanna:1_0:1\n", "\x00:1:1\nb\u202e:1:1\n", "anna:-1:1\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ranges := parseSubuid(data)
		if lines := strings.Count(string(data), "\n") + 1; len(ranges) > lines {
			t.Fatalf("%d ranges in %d lines", len(ranges), lines)
		}
		var again strings.Builder
		for _, r := range ranges {
			if isNoName(r.owner) || r.has(-1) || r.count > 0 && r.start < 1<<62 && (!r.has(int(r.start)) || r.start > 0 && r.has(int(r.start)-1)) {
				t.Fatalf("%+v", r)
			}
			fmt.Fprintf(&again, "%s:%d:%d\n", r.owner, r.start, r.count)
		}
		if same := parseSubuid([]byte(again.String())); fmt.Sprint(same) != fmt.Sprint(ranges) {
			t.Fatalf("%v, and then %v", ranges, same)
		}
	})
}

// TestUsers: a process may be of the user of its uid, and of each owner of a range that has it.
func TestUsers(t *testing.T) {
	p, _ := machine(t, map[string]string{"subuid": "anna:100000:65536\n1001:100000:10\ncarol:300000:10\nghost:400000:1\n"})
	for uid, want := range map[int][]int{
		0: {0}, 1000: {1000}, 100000: {100000, 1000, 1001}, 100010: {100010, 1000}, 300001: {300001, 5000}, 400000: {400000},
	} {
		if got, err := p.Users(t.Context(), uid); err != nil || !slices.Equal(got, want) {
			t.Errorf("uid %d is of %v, %v, want %v", uid, got, err, want)
		}
	}
}

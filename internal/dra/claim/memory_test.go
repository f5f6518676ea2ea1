package claim_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// heard is what the kubelet says of claim i with one device.
func (w *world) heard(i int, device string) cdi.Claim {
	w.Helper()
	members, err := w.Members(device)
	w.must(err)
	c := wish(i, device)
	return cdi.Claim{Namespace: c.Namespace, Name: c.Name, UID: c.UID, Requests: []cdi.ClaimRequest{
		{Name: "lpus", List: true, Devices: []cdi.ClaimDevice{{Name: device, LPUs: members}}},
	}}
}

func (w *world) lose(paths ...string) {
	w.Helper()
	for _, path := range paths {
		w.must(os.Remove(path))
	}
}

// TestAnyOneIsEnough: a claim keeps its LPUs by its record, its CDI file, or what the kubelet says, for who has not prepared it.
func TestAnyOneIsEnough(t *testing.T) {
	for left := range 8 {
		w := newWorld(t)
		s := w.store()
		w.prepare(s, wish(1, "arc0-1"))
		reader, want := w.store(), map[int]int{}
		for i, lose := range []func(){
			func() { w.lose(record(s)) }, func() { w.lose(cdi.ClaimFile(s.SpecDir, uid(1))) }, func() { reader.Hear(nil) },
		} {
			if left&(1<<i) == 0 {
				lose()
			} else {
				want = map[int]int{0: 1, 1: 1}
				if i == 2 {
					reader.Hear([]cdi.Claim{w.heard(1, "arc0-1")})
				}
			}
		}
		w.holds(reader, want)
		if claims, err := reader.Claims(); err != nil || len(claims) > 1 || len(claims) != len(want)/2 {
			t.Errorf("%03b: %v, %v", left, claims, err)
		}
		if len(want) > 0 {
			w.refused(reader, wish(2, "arc1"), "has it: team/job-1")
		} else {
			w.prepare(reader, wish(2, "arc1"))
		}
	}
}

// TestBrokenFilesAndTheKubelet: which LPUs the claim of broken files has is known by the kubelet.
func TestBrokenFilesAndTheKubelet(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	w.prepare(s, wish(1, "arc0-1"))
	w.prepare(s, wish(2, "arc2"))
	for _, path := range []string{record(s), cdi.ClaimFile(s.SpecDir, uid(1))} {
		w.must(os.WriteFile(path, []byte("{"), 0o644))
	}
	s = w.store()
	if _, err := s.Holders(); !errors.As(err, new(*claim.UnknownError)) {
		t.Error(err)
	}
	s.Hear([]cdi.Claim{w.heard(1, "arc0-1"), w.heard(2, "arc2")})
	w.holds(s, map[int]int{0: 1, 1: 1, 2: 2})
	_, problems, err := s.Inspect()
	if err != nil || len(problems) != 1 || problems[0].ID != finding.ClaimRecord || problems[0].File != record(s) {
		t.Errorf("%v, %v", problems, err)
	}
	w.restore(s, finding.ClaimRecord, finding.ClaimRecord)
	w.holds(w.store(), map[int]int{0: 1, 1: 1, 2: 2})
	w.env(s, uid(1))
}

// TestLostFiles: what is lost of a claim is written anew within five seconds, exactly as it was, if the kubelet still names the claim some
// time after. What another process gives back is not.
func TestLostFiles(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		s := w.store()
		c := wish(1, "arc0-1")
		c.Requests[0].Variables = claim.None
		w.prepare(s, c)
		_, err := s.Restore(t.Context())
		w.must(err)
		named := []cdi.Claim{w.heard(1, "arc0-1")}
		files := []string{record(s), cdi.ClaimFile(s.SpecDir, uid(1))}
		before := w.read(files[1])
		gone := func() bool {
			_, err := os.Lstat(files[0])
			return errors.Is(err, fs.ErrNotExist)
		}
		turn := func(said []cdi.Claim) { // of the driver
			time.Sleep(time.Second)
			if s.Missing() {
				s.Hear(said)
				_, err := s.Restore(t.Context())
				w.must(err)
			}
		}
		for _, lost := range [][]string{files[:1], files[1:], files} {
			w.lose(lost...)
			w.refused(s, wish(2, "arc1"), "has it: team/job-1")
			for range 4 {
				turn(named)
			}
			if after := w.read(files[1]); gone() || !bytes.Equal(after, before) {
				t.Errorf("%v were lost, and are not as they were: %s", lost, after)
			}
		}
		// Another process gives it back. The kubelet names it until that has answered.
		s.Hear(named)
		time.Sleep(10 * time.Second)
		w.unprepare(w.store(), uid(1))
		turn(named)
		for range 4 {
			turn(nil)
		}
		if !gone() {
			t.Error("a claim that was given back is there again")
		}
		w.prepare(s, wish(2, "arc1"))
		w.unprepare(s, uid(2))
		if s.Hear(nil); s.Missing() {
			t.Error("a claim that was given back is missed")
		}
	})
}

// TestConfirm: a claim is not prepared, and nothing is left of it, if its LPUs turn out to be another's when all else is done. It is asked
// then, and not for a claim that is prepared.
func TestConfirm(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	taken := errors.New("a pod has it")
	var asked []pci.Address
	s.Confirm = func(_ context.Context, lpus []pci.Address) error {
		asked = lpus
		w.env(s, uid(1)) // its file is there
		return taken
	}
	w.refused(s, wish(1, "arc0-1"), "a pod has it")
	if len(asked) != 2 {
		t.Errorf("asked of %v", asked)
	}
	w.holds(s, map[int]int{})
	taken = nil
	w.prepare(s, wish(1, "arc0-1"))
	taken = errors.New("a pod has it")
	w.prepare(s, wish(1, "arc0-1"))
}

// TestStaleWord: a claim that was given back, and that an answer of the kubelet from before still names, is not prepared: it is
// confirmed as any other.
func TestStaleWord(t *testing.T) {
	w := newWorld(t)
	s := w.store()
	w.prepare(s, wish(1, "arc0-1"))
	if !s.Prepared(uid(1)) {
		t.Error("it is not prepared")
	}
	w.unprepare(s, uid(1))
	s.Hear([]cdi.Claim{w.heard(1, "arc0-1")})
	if s.Prepared(uid(1)) {
		t.Error("it is prepared still")
	}
	s.Confirm = func(context.Context, []pci.Address) error { return errors.New("a pod has it") }
	w.refused(s, wish(1, "arc0-1"), "a pod has it")
}

// TestAskedAgain: a claim that is prepared stays so when it is prepared again, though not all was known of it, and its LPUs would not be
// given now.
func TestAskedAgain(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		s := w.store()
		c := wish(1, "arc0-1")
		c.Requests[0].Variables = claim.None
		w.prepare(s, c)
		file := cdi.ClaimFile(s.SpecDir, uid(1))
		before := w.read(file)
		for _, again := range []func(*claim.Store){
			func(*claim.Store) {},
			func(s *claim.Store) { _, err := s.Restore(t.Context()); w.must(err) }, // with variables, which the kubelet does not know
		} {
			w.lose(record(s), file)
			s = w.store()
			for range 2 {
				s.Hear([]cdi.Claim{w.heard(1, "arc0-1")})
				s.Missing()
				time.Sleep(time.Second)
			}
			again(s)
			s.Confirm = func(context.Context, []pci.Address) error { return errors.New("a pod has it") }
			s.Refuse = func(pci.Address) error { return errors.New("it is unhealthy") }
			w.prepare(s, c)
			if after := w.read(file); !bytes.Equal(after, before) {
				t.Errorf("the file is %s", after)
			}
			w.holds(w.store(), map[int]int{0: 1, 1: 1})
			w.restore(s)
		}
	})
}

//go:build vmlab

// Package capture makes the captures of failing cards in testdata. It runs only when it is asked for: go run ./test/vm/lab capture
package capture

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/test/vm/lab/guest"
)

// The drivers: one with handlers for errors of the bus, and one without.
const driver, simple = "lpu_sim", "uio_pci_generic"

func TestCapture(t *testing.T) {
	out, err := os.OpenFile("/dev/virtio-ports/files", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	all := tar.NewWriter(out)
	lpu, network := 0, 6
	for _, state := range []struct {
		name   string
		slot   int
		driver string
		make   func(*guest.Node, guest.Card) error
	}{
		{"well", lpu, driver, func(*guest.Node, guest.Card) error { return nil }},
		{"unbound", lpu, driver, (*guest.Node).Unbind},
		{"removed", lpu, driver, func(n *guest.Node, c guest.Card) error { return n.Remove(c.Address()) }},
		{"link-x4", lpu, driver, func(n *guest.Node, c guest.Card) error { return n.Ask("link", c, 3, 4) }},
		{"link-x0", lpu, driver, func(n *guest.Node, c guest.Card) error { return n.Ask("link", c, 0, 0) }},
		{"all-ones", lpu, driver, func(n *guest.Node, c guest.Card) error { return n.Ask("gone", c, 1) }},
		{"dead-and-rebound", lpu, driver, func(n *guest.Node, c guest.Card) error { return errors.Join(n.Ask("gone", c, 1), n.Rebind(c)) }},
		{"asleep", lpu, driver, func(n *guest.Node, c guest.Card) error { return n.Sleep(c) }},
		{"dead-asleep", lpu, driver, func(n *guest.Node, c guest.Card) error { return errors.Join(n.Sleep(c), n.Ask("gone", c, 1)) }},
		{"bus-reset", lpu, driver, func(n *guest.Node, c guest.Card) error { return n.BusReset(c) }},
		{"well-aer", network, driver, func(*guest.Node, guest.Card) error { return nil }},
		{"recovered", network, driver, func(n *guest.Node, c guest.Card) error { return n.Inject(c.Address(), guest.CompletionTimeout, 0) }},
		{"not-recovered", network, simple, func(n *guest.Node, c guest.Card) error { return n.Inject(c.Address(), guest.MalformedTLP, 0) }},
	} {
		t.Run(state.name, func(t *testing.T) {
			n := guest.Open(t, state.driver)
			c := n.Card(state.slot)
			n.Fault(state.name, func() error { return state.make(n, c) })
			time.Sleep(2 * time.Second) // a recovery takes more than one
			n.Must(add(all, state.name, c))
		})
	}
	if err := all.Close(); err != nil {
		t.Fatal(err)
	}
}

// add captures a card and adds it to an archive of archives.
func add(all *tar.Writer, name string, c guest.Card) error {
	file := filepath.Join(os.TempDir(), name+".tar")
	said, err := exec.Command("sh", "/lab/capture.sh", file, c.Management(), c.Address()).CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(said)))
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	err = all.WriteHeader(&tar.Header{Name: name + ".tar.gz", Mode: 0o644, Size: int64(zipped.Len())})
	if err == nil {
		_, err = all.Write(zipped.Bytes())
	}
	return err
}

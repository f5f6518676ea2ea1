package cli

import (
	"os"
	"os/signal"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// TestAnEarlyHangUpIsRemembered until the command that takes it comes to it.
func TestAnEarlyHangUpIsRemembered(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP) // who starts the tests may ignore it, as nohup does
	ctx := HeedHangUp(t.Context())
	if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{}
	Reloads(cmd)
	cmd.SetContext(ctx)
	heedHangUp(cmd)
	received := HangUps(cmd)
	defer signal.Stop(received)
	<-received
}

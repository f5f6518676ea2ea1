package cli

import (
	"context"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// hangUpKey is the key of the channel that receives SIGHUP in the context of commands.
type hangUpKey struct{}

// reloads is the annotation of commands that read their configuration again at SIGHUP.
const reloads = "lpuctl_reloads"

// HeedHangUp is called before anything else, so that no SIGHUP ends a program whose
// command takes it as a reload, however early it comes. It returns the context for the
// commands. [App.Prepare] lets SIGHUP end any other command.
func HeedHangUp(ctx context.Context) context.Context {
	received := make(chan os.Signal, 1)
	if !signal.Ignored(unix.SIGHUP) { // as by nohup(1): then it does no harm, and stays ignored
		signal.Notify(received, unix.SIGHUP)
	}
	return context.WithValue(ctx, hangUpKey{}, received)
}

// Reloads says that a command calls [HangUps].
func Reloads(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[reloads] = ""
}

// HangUps returns the channel that receives SIGHUP. One that came since the start of the
// program is in it.
func HangUps(cmd *cobra.Command) chan os.Signal {
	received, heeded := cmd.Context().Value(hangUpKey{}).(chan os.Signal)
	if !heeded {
		received = make(chan os.Signal, 1)
	}
	signal.Notify(received, unix.SIGHUP)
	return received
}

// heedHangUp lets SIGHUP end a command that does not take it, also one that has come
// already.
func heedHangUp(cmd *cobra.Command) {
	received, heeded := cmd.Context().Value(hangUpKey{}).(chan os.Signal)
	if _, takes := cmd.Annotations[reloads]; takes || !heeded {
		return
	}
	signal.Stop(received)
	select {
	case <-received:
		_ = unix.Kill(os.Getpid(), unix.SIGHUP)
	default:
	}
}

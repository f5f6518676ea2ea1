package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/top"
)

// framesPerSecond is how often the terminal may be written to: often enough for keys, and
// seldom enough to cost nothing at rest.
const framesPerSecond = 10

// draw shows the screen until a key or ctx ends it.
func draw(ctx context.Context, a *app, metrics string) error {
	k, err := newLooker(a, metrics)
	if err != nil {
		return err
	}
	a.Log = slog.New(slog.DiscardHandler) // it would spoil the screen
	k.pods.Log = a.Log
	ctx, end := context.WithCancel(ctx)
	program := tea.NewProgram(screen{&top.View{Style: a.style()}}, tea.WithContext(ctx), tea.WithInput(a.in), tea.WithOutput(a.Out),
		tea.WithEnvironment(a.terminal()), tea.WithFPS(framesPerSecond), tea.WithoutSignalHandler())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.watcher.Run(ctx, cli.WatchInterval, func() {
			l, err := k.look(ctx)
			program.Send(looked{l, err})
		})
	}()
	_, err = program.Run()
	ended := ctx.Err() != nil
	end()
	// A look that hangs in the kernel does not hold up the end for long.
	select {
	case <-done:
	case <-time.After(lastLook):
	}
	if ended && errors.Is(err, tea.ErrProgramKilled) {
		return nil
	}
	return err
}

// terminal are the variables of the environment that say what the terminal is.
func (a *app) terminal() (environment []string) {
	for _, name := range []string{"TERM", "TERM_PROGRAM", "COLORTERM", "TMUX", "SSH_TTY", "NO_COLOR"} {
		if value, set := a.Env(name); set {
			environment = append(environment, name+"="+value)
		}
	}
	return environment
}

// lastLook is how long the end of the program waits for a look that has begun.
const lastLook = 100 * time.Millisecond

// looked is the message of a look, or of why it failed.
type looked struct {
	look *top.Look
	err  error
}

// screen hands messages to a view.
type screen struct{ view *top.View }

// Init does nothing: looks come by themselves.
func (screen) Init() tea.Cmd { return nil }

// Update takes one message.
func (s screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		s.view.Width, s.view.Height = m.Width, m.Height
	case looked:
		s.view.Fault = ""
		if m.err != nil {
			s.view.Fault = m.err.Error()
		} else {
			s.view.Take(m.look)
		}
	case tea.KeyPressMsg:
		if m.String() == "ctrl+z" {
			return s, tea.Suspend
		}
		if s.view.Press(m.String(), m.Text) {
			return s, tea.Quit
		}
	case tea.PasteMsg:
		s.view.Press("", m.Content)
	}
	return s, nil
}

// View returns what the terminal shows.
func (s screen) View() tea.View {
	v := tea.NewView(s.view.Screen(time.Now()))
	v.AltScreen = true
	return v
}

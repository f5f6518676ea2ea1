package main

import (
	"context"
	"reflect"
	"sync"
)

// component is a goroutine that runs with one configuration at a time.
type component[C any] struct {
	config  C
	starts  int // how often it was started
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// start runs a component with a configuration. One that runs with the same configuration
// goes on; one that runs with another ends first.
func (c *component[C]) start(ctx context.Context, config C, run func(context.Context, C)) {
	if c.starts > 0 && reflect.DeepEqual(c.config, config) {
		return
	}
	c.stop()
	ctx, c.cancel = context.WithCancel(ctx)
	c.config = config
	c.starts++
	c.running.Go(func() { run(ctx, config) })
}

// stop ends a component, if it runs, and waits for its end.
func (c *component[C]) stop() {
	if c.starts > 0 {
		c.cancel()
		c.running.Wait()
	}
}

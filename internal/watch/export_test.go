package watch

import "github.com/hyperaccel/lpuctl/internal/uevent"

// Take gives a watcher an event as if the kernel had told it.
func (w *Watcher) Take(e uevent.Event) { w.take(e) }

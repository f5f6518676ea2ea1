package main

import (
	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/internal/launch"
	"github.com/hyperaccel/lpuctl/internal/node"
	"github.com/hyperaccel/lpuctl/internal/owner"
	"github.com/hyperaccel/lpuctl/internal/pods"
)

// beyondRuntimes are the checks of what stands between the runtimes and a container, and
// of who hands out LPUs. The config was read.
func beyondRuntimes(a *app, scan doctor.Scan) []doctor.Check {
	var limit func() (uint64, bool)
	if a.Root == "/" {
		limit = launch.MemlockLimit
	}
	memory, _ := node.RememberIn(a.Root) // without a directory there are no records
	handing := doctor.Pods{
		Root: a.Root, Scan: scan,
		Node:  func() (*pods.Node, error) { return a.Pods(memory) },
		Stand: func() (owner.File, owner.Standing, error) { return standing(a) },
	}
	return []doctor.Check{
		doctor.Confined(doctor.Confinement{Root: a.Root, Scan: scan, PluginDir: a.Config.Serve.PluginDir}),
		doctor.DevChars(a.Root, scan),
		doctor.Memlocks(a.Root, limit),
		doctor.Leasing(doctor.LeaseService{Root: a.Root, StateDir: memory.Dir, Scan: scan}),
		doctor.Registration(handing),
		doctor.Driving(handing),
		doctor.SelfCheck(a.Root),
		doctor.OwnUnits(a.Root),
	}
}

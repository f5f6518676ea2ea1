package main

import (
	"context"
	"net"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/exporter"
)

func newExporterCommand(a *app) *cobra.Command {
	const here = "127.0.0.1:9477"
	var address string
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "Serve the metrics of a node without Kubernetes",
		Long: `exporter serves /metrics for Prometheus, /healthz and /readyz where no lpuctl serve does: health, sensors and links of the LPUs,
cordons, problems, how the CDI spec in place differs from one made now, and who has which LPU: by lease, by reservation, or by having its
node open. Of who has it open it tells the container runtime, the container and the user id, and no program or command line.

It watches as list --watch does, and writes nothing. Who has an LPU open is looked up at least every ten seconds. To see the processes of
other users it needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, which lpuctl-exporter.service gives it; without, lpuctl_users_hidden is 1.

On a node where lpuctl serve or lpuctl-dra runs it is refused, and ends when one comes: that has the metrics of the node.
After a change of the config file, start it again. More: /usr/share/doc/lpuctl/exporter.md.`,
		Example: `  sudo systemctl enable --now lpuctl-exporter.service    # the usual way
  sudo lpuctl exporter --listen 127.0.0.1:9478           # by hand, to see what it does
  curl -s 127.0.0.1:9477/metrics | grep lpuctl_lpu_holder`,
		RunE: func(cmd *cobra.Command, _ []string) error { return export(a, cmd, address) },
	}
	cmd.Flags().StringVar(&address, "listen", here, "`ADDRESS` of /healthz, /readyz and /metrics")
	cli.FromEnvironment(cmd.Flags().Lookup("listen"))
	a.SpecDirFlag(cmd)
	a.RingTableFlag(cmd)
	return cmd
}

func export(a *app, cmd *cobra.Command, address string) error {
	if err := a.SetUpDaemonLog(cmd); err != nil {
		return err
	}
	if err := cli.CheckAddress(address); err != nil {
		return cli.Usage("--listen %s: %v", address, err)
	}
	scan, memory, spec, err := a.Following()
	if err != nil {
		return err
	}
	of, err := a.Pods(memory)
	if err != nil {
		return err
	}
	e := exporter.New(of, scan, memory, spec)
	if err := e.Refused(); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(cmd.Context())
	defer end(nil)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return cli.WithRemedy(err, "choose another address with --listen, or see who has this one: ss -ltnp")
	}
	a.Log.Info("listening", "address", listener.Addr().String())
	e.Run(ctx, end, listener, cli.WatchInterval, cli.BuildLabels()...)
	return cli.Stopped(ctx, cmd)
}

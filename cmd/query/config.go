package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/client"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/stdin"
)

// configFlags name the agent and the client.
type configFlags struct {
	addr, name    string
	cert, key, ca string
	timeout       time.Duration
}

func (f *configFlags) addFlags(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	fs.StringVar(&f.addr, "connect", flags.Auto, "gRPC address of the agent: host:port, or unix: and the path of its --grpc-socket; auto: that of run --grpc-socket auto")
	fs.StringVar(&f.name, "client", "", "name of this client, among the clients with the same certificate or without one; each client has a separate desired state (default: the client without a name)")
	fs.StringVar(&f.cert, "cert", "", "file with this client's certificate; needs --key and --ca")
	fs.StringVar(&f.key, "key", "", "file with its private key")
	fs.StringVar(&f.ca, "ca", "", "file with the authorities that sign the agent's certificate")
	fs.DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait for the agent")
}

// dial returns a client and a context for its calls; end releases both.
func (f *configFlags) dial(cmd *cobra.Command) (c *client.Client, ctx context.Context, end func(), err error) {
	cfg := client.Config{Addr: f.addr, Name: f.name}
	if cfg.Addr == flags.Auto {
		cfg.Addr = "unix:" + flags.GRPCSocket(flags.Auto)
	}
	switch {
	case (f.cert == "") != (f.key == "") || (f.cert == "") != (f.ca == ""):
		return nil, nil, nil, exit.Usage(errors.New("--cert, --key and --ca need each other"))
	case f.cert != "":
		if cfg.TLS, err = client.LoadTLS(f.cert, f.key, f.ca); err != nil {
			return nil, nil, nil, exit.Usage(err)
		}
	}
	if c, err = client.New(cfg); err != nil {
		return nil, nil, nil, exit.Usage(err)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	return c, ctx, func() { cancel(); _ = c.Close() }, nil
}

// NewConfig returns the command config, with its subcommands.
func NewConfig() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Put, show, compare and remove a client's configuration in a running agent",
		Long: `config uses the agent's gRPC API (run --grpc-socket, --grpc-listen) from the command line. The agent merges a client's items over
its own desired state, and keeps them until the client deletes them.

A file has YAML documents. Each is one item:

  key: config/vpp/v2/interfaces/loop1     or     model: vpp.interfaces
  value:                                         value:
    name: loop1                                    name: loop1
    type: SOFTWARE_LOOPBACK                        type: SOFTWARE_LOOPBACK

or ligato's whole configuration, in the form of its agentctl:

  vppConfig:
    interfaces:
    - {name: loop1, type: SOFTWARE_LOOPBACK}

Fields are those of the .proto, spelled as there or in lowerCamelCase. For delete, key, or model and name, are enough. An item may also
have labels, and merge: how the agent merges it with other owners' values of its key. "once" does not append list entries that exist,
"replace=mtu,ip_addresses" clears these fields first, "replace" clears all.

Exit codes: 0 done; 1 the agent refused, items failed, or no agent answers; 2 the file or the flags are wrong; 3 "diff" found a
difference.`,
		Example: `  contiv-agent config put -f loop.yaml
  contiv-agent config diff -f loop.yaml
  contiv-agent config get
  contiv-agent config get --vpp vpp.nat.dnat44
  contiv-agent config delete config/vpp/v2/interfaces/loop1
  contiv-agent config get --connect node-1:9111 --cert me.crt --key me.key --ca ca.crt`,
	}
	f.addFlags(cmd)
	cmd.AddCommand(newConfigGet(&f), newConfigPut(&f), newConfigDelete(&f), newConfigDiff(&f))
	return cmd
}

func newConfigGet(f *configFlags) *cobra.Command {
	var vpp bool
	var labels map[string]string
	var format string
	cmd := &cobra.Command{
		Use:   "get [KEY|MODEL ...]",
		Short: "Show this client's desired state, or VPP's actual state",
		Long: `get shows the desired state of this client, as documents that put and diff read. With --vpp it shows the values that VPP has
acknowledged, of all owners: the agent itself and all clients. Keys and models (vpp.interfaces) select; without any, get shows all.`,
		Example: "  contiv-agent config get\n  contiv-agent config get -o text\n  contiv-agent config get --vpp vpp.interfaces -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if vpp && len(labels) > 0 || len(args) > 0 && len(labels) > 0 {
				return exit.Usage(errors.New("--label cannot be combined with --vpp or with keys"))
			}
			if !slices.Contains([]string{"yaml", "text", "json", "name"}, format) {
				return exit.Usage(fmt.Errorf("-o %s: must be yaml, text, json or name", format))
			}
			c, ctx, end, err := f.dial(cmd)
			if err != nil {
				return err
			}
			defer end()
			ask := c.Config
			if vpp {
				ask = c.State
			}
			items, err := ask(ctx, client.Filter{Keys: args, Labels: labels})
			if err != nil {
				return f.explain(cmd, err)
			}
			return show.Items(cmd.OutOrStdout(), format, items)
		},
	}
	cmd.Flags().BoolVar(&vpp, "vpp", false, "show the actual state of VPP")
	cmd.Flags().StringToStringVarP(&labels, "label", "l", nil, "show only items with these labels: name=value, name= for any value, !name=value for other values")
	cmd.Flags().StringVarP(&format, "output", "o", "yaml", "output format: yaml, text, json or name")
	return cmd
}

// readFiles reads documents; - is standard input.
func readFiles(cmd *cobra.Command, files []string) (docs []client.Document, err error) {
	if len(files) == 0 {
		return nil, exit.Usage(errors.New("-f is required"))
	}
	var errs []error
	for _, name := range files {
		data, err := readText(cmd, &name)
		if err == nil {
			var some []client.Document
			some, err = client.ReadDocuments(name, data)
			docs = append(docs, some...)
		}
		errs = append(errs, err)
	}
	return docs, exit.Usage(errors.Join(errs...))
}

// readTexts returns files as one stream of YAML documents. It fails if one of them is not valid.
func readTexts(cmd *cobra.Command, files []string) (string, error) {
	if len(files) == 0 {
		return "", exit.Usage(errors.New("-f is required"))
	}
	var all []string
	for _, name := range files {
		data, err := readText(cmd, &name)
		if err == nil {
			_, err = client.ReadDocuments(name, data)
		}
		if err != nil {
			return "", exit.Usage(err)
		}
		all = append(all, string(data))
	}
	return strings.Join(all, "\n---\n"), nil
}

// readText returns the content of a file, or of standard input, which gets a name.
func readText(cmd *cobra.Command, name *string) ([]byte, error) {
	if *name != "-" {
		return os.ReadFile(*name)
	}
	*name = "standard input"
	stdin.Prompt(cmd.InOrStdin(), cmd.ErrOrStderr(), "YAML documents, such as key: … and value: …. Ctrl-D ends.")
	return io.ReadAll(cmd.InOrStdin())
}

func newConfigPut(f *configFlags) *cobra.Command {
	var files []string
	var strict, all bool
	cmd := &cobra.Command{
		Use:     "put -f FILE",
		Aliases: []string{"apply"},
		Short:   "Create or replace items, in one transaction",
		Long: `put sends all items of the files as one transaction, waits for it, and prints the result. The agent reverts items that can never
work. It keeps items that VPP refused for now, and retries them, unless --all-or-nothing is set.

apply is another name of put.`,
		Example: "  contiv-agent config apply -f loop.yaml\n  contiv-agent config put --resync -f everything.yaml\n  kubectl get cm my-vpp -o jsonpath='{.data.config}' | contiv-agent config put -f -",
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, err := readFiles(cmd, files)
			if err != nil {
				return err
			}
			c, ctx, end, err := f.dial(cmd)
			if err != nil {
				return err
			}
			defer end()
			change := c.DataChange().Put()
			if all {
				change = c.DataResync()
			}
			if strict {
				change.AllOrNothing()
			}
			for _, d := range docs {
				if d.Message == nil {
					return exit.Usage(fmt.Errorf("%s: %s has no value", d.Where, d.Key))
				}
				change.Item(d.Message)
				if !d.Merge.Zero() {
					change.Merge(d.Merge)
				}
				if len(d.Labels) > 0 {
					change.Labels(d.Labels)
				}
			}
			if err := change.Send(ctx); err != nil {
				return f.explain(cmd, err)
			}
			return show.Change(cmd.OutOrStdout(), "put", len(docs), change.Change)
		},
	}
	cmd.Flags().StringSliceVarP(&files, "file", "f", nil, "file of YAML documents; - is standard input")
	cmd.Flags().BoolVar(&strict, "all-or-nothing", false, "if one item fails, revert all")
	cmd.Flags().BoolVar(&all, "resync", false, "the files are the whole desired state of this client: the agent removes its other items")
	return cmd
}

// explain prints the items of an error, one per line, and adds the address if no agent answered.
func (f *configFlags) explain(cmd *cobra.Command, err error) error {
	var failed *client.Error
	if !errors.As(err, &failed) {
		return err
	}
	for _, item := range failed.Items {
		fmt.Fprintln(cmd.ErrOrStderr(), terminal.Plain(fmt.Sprint(item)))
	}
	switch {
	case errors.Is(err, client.ErrFailed) && len(failed.Items) > 0:
		return fmt.Errorf("%d items failed", len(failed.Items))
	case errors.Is(err, client.ErrInvalid) && len(failed.Items) > 0:
		return errors.New("refused; the agent changed nothing")
	case errors.Is(err, client.ErrUnavailable):
		return fmt.Errorf("agent at --connect %s: %w", f.addr, err)
	}
	return err
}

func newConfigDelete(f *configFlags) *cobra.Command {
	var files []string
	var strict bool
	cmd := &cobra.Command{
		Use:     "delete [-f FILE] [KEY ...]",
		Short:   "Remove items, in one transaction",
		Long:    `delete removes items of this client: those that the files name, and those with these keys. Values of other owners for the same keys stay.`,
		Example: "  contiv-agent config delete -f loop.yaml\n  contiv-agent config delete config/vpp/v2/interfaces/loop1",
		RunE: func(cmd *cobra.Command, args []string) error {
			var docs []client.Document
			if len(files) > 0 || len(args) == 0 {
				var err error
				if docs, err = readFiles(cmd, files); err != nil {
					return err
				}
			}
			c, ctx, end, err := f.dial(cmd)
			if err != nil {
				return err
			}
			defer end()
			change := c.DataChange().Delete()
			if strict {
				change.AllOrNothing()
			}
			for _, d := range docs {
				change.Key(d.Key)
			}
			for _, key := range args {
				if _, _, known := kv.Lookup(key); !known {
					return exit.Usage(fmt.Errorf("%s: %w", key, kv.ErrNoModel))
				}
				change.Key(key)
			}
			if err := change.Send(ctx); err != nil {
				return f.explain(cmd, err)
			}
			return show.Change(cmd.OutOrStdout(), "deleted", len(docs)+len(args), change.Change)
		},
	}
	cmd.Flags().StringSliceVarP(&files, "file", "f", nil, "file of YAML documents; - is standard input")
	cmd.Flags().BoolVar(&strict, "all-or-nothing", false, "if one item fails, revert all")
	return cmd
}

func newConfigDiff(f *configFlags) *cobra.Command {
	var files []string
	var all bool
	var out show.Output
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Compare files with this client's desired state, and with VPP's actual state",
		Long: `diff compares every item of the files with the client's item in the agent, and with VPP's value of the same key. Other owners may
contribute to that value: diff reports only fields of the file that VPP lacks.

A line with + is an item that put would create, with ~ one that it would change, with - one that it would remove (--resync). A line
with ! is an item that VPP lacks, or has with another value. -o json has the same as fields, and -o name the keys that differ.

Exit code 0: no difference; 3: a difference.`,
		Example: "  contiv-agent config diff -f loop.yaml\n  contiv-agent config diff -f loop.yaml -o json\n  contiv-agent config diff --resync -f everything.yaml",
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, err := readFiles(cmd, files)
			if err != nil {
				return err
			}
			c, ctx, end, err := f.dial(cmd)
			if err != nil {
				return err
			}
			defer end()
			wanted, err := c.Config(ctx, client.Filter{})
			if err != nil {
				return f.explain(cmd, err)
			}
			var keys []string
			for _, d := range docs {
				keys = append(keys, d.Key)
			}
			var has []client.Item
			if len(keys) > 0 {
				if has, err = c.State(ctx, client.Filter{Keys: keys}); err != nil {
					return f.explain(cmd, err)
				}
			}
			diff := show.DiffOf(docs, wanted, has, all)
			if err := out.PrintNamed(cmd.OutOrStdout(), diff, diff.WriteText, diff.Keys); err != nil || diff.Equal {
				return err
			}
			return &exit.Error{Code: exit.Differs}
		},
	}
	cmd.Flags().StringSliceVarP(&files, "file", "f", nil, "file of YAML documents; - is standard input")
	cmd.Flags().BoolVar(&all, "resync", false, "the files are the whole desired state of this client, as for put --resync")
	out.AddNameFlag(cmd)
	return cmd
}

package prover

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/verify/intent"
	"github.com/contiv-agent/contiv-agent/verify/intent/ask"
)

// questions are the flags for questions about manifests alone.
type questions struct {
	never, always, files []string
}

// running are the flags that only a question about a running VPP uses.
var running = []string{"vpp-socket", "node", "host-address", "timeout"} // read only

func (q *questions) addFlags(fs *pflag.FlagSet) {
	fs.StringArrayVar(&q.never, "never", nil, "assert about --manifests alone that policies allow no new connection: 'ns:dev -> ns:prod'; may be repeated")
	fs.StringArrayVar(&q.always, "always", nil, "assert about --manifests alone that policies allow every new connection: 'ns:web -> service:shop/db:5432/TCP'; may be repeated")
	fs.StringSliceVar(&q.files, "assert", nil, "files of YAML with assertions about --manifests alone")
}

func (q *questions) given() bool { return len(q.never)+len(q.always)+len(q.files) > 0 }

// readAll returns the assertions of all files and flags, or an error that names everything that is wrong.
func (q *questions) readAll() (list []ask.Assertion, err error) {
	var errs []error
	for _, path := range q.files {
		more, err := ask.ReadFile(path)
		list, errs = append(list, more...), append(errs, err)
	}
	parse := func(kind ask.Kind, texts []string) {
		for _, text := range texts {
			a, err := ask.Parse(kind, text)
			if err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", kind, err))
			}
			list = append(list, a)
		}
	}
	parse(ask.Never, q.never)
	parse(ask.Always, q.always)
	return list, errors.Join(errs...)
}

// run evaluates the assertions.
func (q *questions) run(cmd *cobra.Command, manifests []string, all bool, out *show.Output) error {
	if err := alone(cmd); err != nil {
		return exit.Usage(err)
	}
	list, err := q.readAll()
	if err != nil {
		return exit.Usage(err)
	}
	objects, err := objectsOf(manifests, cmd.ErrOrStderr())
	if err != nil {
		return exit.Usage(err)
	}
	report := intent.Read(objects).Check(list)
	if err := out.Print(cmd.OutOrStdout(), report, func(w io.Writer) { show.Asserted(w, report, all) }); err != nil {
		return err
	}
	if report.Verdict != intent.Holds {
		return &exit.Error{Code: exit.Differs}
	}
	return nil
}

// alone refuses flags that need a VPP.
func alone(cmd *cobra.Command) error {
	for _, name := range running {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for a running VPP: --never, --always, --assert and --diff ask about manifests alone", name)
		}
	}
	return nil
}

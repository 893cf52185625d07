package flags

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
)

// Log choose how the program logs.
type Log struct {
	Format, Level string
	Current       slog.LevelVar // level of the logger that was made
}

// AddFlags adds the flags to a command.
func (f *Log) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Format, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&f.Level, "log-level", "info", "debug, info, warn or error; the log-level command changes it later")
}

// Logger returns a logger to w. The error names all wrong flags; the logger works nevertheless.
func (f *Log) Logger(w io.Writer) (*slog.Logger, error) {
	var errs []error
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.Level)); err != nil {
		errs = append(errs, fmt.Errorf("--log-level %s: must be debug, info, warn or error", f.Level))
	}
	f.Current.Set(level)
	opts := &slog.HandlerOptions{Level: &f.Current}
	log := slog.New(slog.NewTextHandler(w, opts))
	switch f.Format {
	case "text":
	case "json":
		log = slog.New(slog.NewJSONHandler(w, opts))
	default:
		errs = append(errs, fmt.Errorf("--log-format %s: must be text or json", f.Format))
	}
	return log, exit.Usage(errors.Join(errs...))
}

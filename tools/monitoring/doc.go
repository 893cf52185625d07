// Package monitoring holds deploy/monitoring to the program: it turns the expressions of the dashboard and of the alert rules into
// metrics and labels, and looks for each among those that the agent and the fan-out server export. It is a separate module
// because Prometheus' parser is.
//
// Invariant: what is not exported is in no expression.
package monitoring

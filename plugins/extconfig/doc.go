// Package extconfig turns requests of other programs into values for the controller. It validates and applies each request, and only
// then stores it in a file, so that a restart restores the acknowledged requests and no refused one.
//
// Invariant: each client owns its values. Only that client changes them, whatever others request, and the file holds exactly what
// the clients' answers acknowledged.
package extconfig

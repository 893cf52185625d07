/* VPP 25.06 to 26.06 reads its files 16 at a time, and returns to its main loop only when epoll_wait has returned fewer (vlib_file_poll, src/vlib/file.c).
 * An af_packet interface stays readable until an input node has run, which is in the main loop. So a VPP with 16 readable interfaces neither forwards nor
 * answers any more. This library lets epoll_wait return one file less than VPP asks for; the rest is VPP's next call.
 *
 *	cc -shared -fPIC -O2 -o epoll.so epoll.c
 *	LD_PRELOAD=/path/to/epoll.so vpp -c startup.conf
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/epoll.h>

int
epoll_wait (int fd, struct epoll_event *events, int max, int timeout)
{
  return epoll_pwait (fd, events, max > 1 ? max - 1 : max, timeout, NULL);
}

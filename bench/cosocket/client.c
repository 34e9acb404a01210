/* The floor: COUNT round trips of five bytes over a unix socket, waiting for each answer as a program does that has
 * nothing else to do: the read is tried again for a while, then poll() waits. client PATH COUNT */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TRIES = 200 };

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s PATH COUNT\n", argv[0]);
        return 2;
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, argv[1], sizeof(address.sun_path) - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address))) {
        perror("connect");
        return 1;
    }
    long count = atol(argv[2]);
    char answer[5];
    for (long i = 0; i < count; i++) {
        if (send(fd, "hello", 5, MSG_NOSIGNAL) != 5)
            return 1;
        size_t have = 0;
        int tries = 0;
        while (have < 5) {
            ssize_t got = recv(fd, answer + have, 5 - have, MSG_DONTWAIT);
            if (got > 0) {
                have += got;
            } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
                return 1;
            } else if (tries++ >= TRIES) {
                struct pollfd one = {.fd = fd, .events = POLLIN};
                poll(&one, 1, -1);
                tries = 0;
            }
        }
        if (memcmp(answer, "hello", 5))
            return 1;
    }
    return 0;
}

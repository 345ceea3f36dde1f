/* aio.h: door of the aio room: bytes between one file and memory. The public header is all there is to it; other rooms of the
 * library come in through the same calls as a program that uses the queue alone. */
#ifndef ZOFF_AIO_AIO_H
#define ZOFF_AIO_AIO_H

#include <zoff/aio.h>

#endif
